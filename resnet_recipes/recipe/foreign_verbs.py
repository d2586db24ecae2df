"""Tables of commands and flags of other programs, and what they are called here."""

#: Verbs of others, and ours.
VERBS = {
    "bench": "measure",
    "benchmark": "measure",
    "augmentations": "methods",
    "check": "doctor",
    "copy": "cp",
    "describe": "show",
    "evaluate": "eval",
    "fit": "train",
    "infer": "predict",
    "inference": "predict",
    "list": "ls",
    "test": "eval",
    "val": "eval",
    "cat": "show",
    "classify": "predict",
    "info": "show",
    "lint": "validate",
    "launch": "train",
    "new": "cp",
    "init": "cp",
    "log": "watch",
    "logs": "watch",
    "optimizers": "methods",
    "plot": "report",
    "push": "export",
    "tail": "watch",
    "upload": "export",
    "profile": "bottleneck",
    "run": "train",
    "start": "train",
    "status": "runs",
    "time": "estimate",
}

#: Flags of others, and ours, in commands that have them.
FLAGS = {
    "format": "--to",
    "k": "--top",
    "o": "--out",
    "output": "--out",
    "output_dir": "--out",
    "out_dir": "--out",
    "topk": "--top",
    "type": "--to",
}

#: Flags of others for what are words of their own in eval, predict and export: RUN, and its images.
RUNS = ("weights", "model", "checkpoint", "ckpt", "run", "resume", "path")
IMAGES = ("source", "input", "inputs", "image", "images", "folder")
