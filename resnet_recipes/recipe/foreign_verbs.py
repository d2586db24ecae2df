"""Tables of commands and flags of other programs, and what they are called here."""

#: Verbs of others, and ours.
VERBS = {
    "bench": "estimate",
    "benchmark": "estimate",
    "bottleneck": "estimate",
    "augmentations": "methods",
    "check": "doctor",
    "copy": "cp",
    "describe": "show runs",
    "evaluate": "eval",
    "fit": "train",
    "infer": "predict",
    "inference": "predict",
    "list": "ls runs",
    "test": "eval",
    "val": "eval",
    "cat": "show runs",
    "classify": "predict",
    "info": "show runs",
    "lint": "validate",
    "launch": "train",
    "new": "cp",
    "init": "cp",
    "log": "watch",
    "logs": "watch",
    "optimizers": "methods",
    "dashboard": "report",
    "plot": "report",
    "tensorboard": "report",
    "ui": "report",
    "serve": "export",
    "push": "export",
    "tail": "watch",
    "upload": "export",
    "measure": "estimate",
    "profile": "estimate",
    "run": "train",
    "start": "train",
    "status": "runs",
    "time": "estimate",
}

#: Flags of others, and ours, of which a command has at most one.
FLAGS = {
    "confusion_matrix": "--png",
    "filename": "--out --csv",
    "format": "--to",
    "k": "--top",
    "o": "--out --csv",
    "j": "--parallel",
    "jobs": "--parallel",
    "n_jobs": "--parallel",
    "out": "--csv --png",
    "output": "--out --csv --png",
    "output_dir": "--out --csv",
    "out_dir": "--out --csv",
    "preprocess": "--with-preprocessing",
    "save": "--csv",
    "save_json": "--json",
    "save_txt": "--csv",
    "topk": "--top",
    "type": "--to",
}

#: Flags of others for what are words of their own in eval, predict and export: RUN, and its images.
RUNS = ("weights", "model", "checkpoint", "ckpt", "run", "resume", "path")
IMAGES = ("source", "input", "inputs", "image", "images", "folder")

#: Formats of others for `export`, and the one that is theirs or that their converters read.
FORMATS = {
    **dict.fromkeys(("coreml", "engine", "ncnn", "openvino", "tensorrt", "tflite", "trt"), "onnx"),
    **dict.fromkeys(("hf", "hub", "huggingface", "transformers"), "timm"),
    **dict.fromkeys(("executorch", "export", "pt2"), "exported_program"),
    **dict.fromkeys(("jit", "script", "ts"), "torchscript"),
    **dict.fromkeys(("pt", "pth", "pytorch", "torch"), "torchvision"),
}
