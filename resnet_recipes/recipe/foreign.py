"""Words of other programs, and what is typed here instead."""

import re
import shlex
from typing import NamedTuple


class Meaning(NamedTuple):
    """What to type, and what a reader from elsewhere should know."""

    words: str  # with {} for the value
    rule: str = ""


_DATA = "data={}"
_BATCH = "bs={}"
_SIDE = "data.train_size={}"
_ROOT = "run.root={}"
_EPOCHS = "epochs={}"
_GPUS = "gpus={}"
_CLASSES = Meaning("", "is not a setting: the classes are counted in the images")
_PATIENCE = Meaning("", "is not a setting: a run ends when its schedule does, or at stop_at_top1=")
_AMP = Meaning("precision.dtype=auto", "is the default on a GPU: bf16, or fp16 on older ones")

#: By timm, torchvision's references, Lightning, Ultralytics, Composer, Hydra and habit.
MEANINGS: dict[str, str | Meaning] = {
    "a": "model.name={}",
    "aa": "methods.randaugment={{}}",
    "accelerator": "launch.device={}",
    "amp": _AMP,
    "arch": "model.name={}",
    "auto_augment": "methods.randaugment={{}}",
    "b": _BATCH,
    "backbone": "model.name={}",
    "base_lr": "lr={}",
    "batch": _BATCH,
    "batch_size": _BATCH,
    "bf16": "precision.dtype=bf16",
    "c": "recipe={}",
    "cd": "--recipes {}",
    "checkpoint": "--resume {}",
    "ckpt": "--resume {}",
    "ckpt_path": "--resume {}",
    "classes": _CLASSES,
    "clip_grad": "optimizer.clip_norm={}",
    "cn": "recipe={}",
    "compile": "precision.compile=true",
    "config": "recipe={}",
    "config_dir": "--recipes {}",
    "config_file": "recipe={}",
    "config_name": "recipe={}",
    "config_path": "--recipes {}",
    "bs": _BATCH,
    "crop": _SIDE,
    "cutmix": "methods.cutmix.alpha={}",
    "cutmix_alpha": "methods.cutmix.alpha={}",
    "data": _DATA,
    "data_dir": _DATA,
    "data_path": _DATA,
    "data_root": _DATA,
    "dataset": _DATA,
    "default_root_dir": _ROOT,
    "device": "launch.device={}",
    "devices": _GPUS,
    "drop_path": "methods.stochastic_depth.drop_rate={}",
    "early_stopping": _PATIENCE,
    "ema": "methods.ema={{}}",
    "epochs": _EPOCHS,
    "experiment": "run={}",
    "fp16": "precision.dtype=fp16",
    "gpus": _GPUS,
    "half": "precision.dtype=fp16",
    "image_size": _SIDE,
    "img_size": _SIDE,
    "imgsz": _SIDE,
    "info": "--cfg",
    "initial_checkpoint": "model.weights={}",
    "j": "workers={}",
    "label_smoothing": "methods.label_smoothing.smoothing={}",
    "learning_rate": "lr={}",
    "log_wandb": "log.to=[wandb]",
    "lr": "lr={}",
    "lr0": "lr={}",
    "lr_scheduler": "schedule={}",
    "lr_warmup_epochs": "schedule.warmup={}ep",
    "max_epochs": _EPOCHS,
    "mixup": "methods.mixup.alpha={}",
    "mixup_alpha": "methods.mixup.alpha={}",
    "mlflow": "log.to=[mlflow]",
    "model": "model.name={}",
    "model_ema": "methods.ema={{}}",
    "momentum": "optimizer.momentum={}",
    "multirun": "-m",
    "name": "run={}",
    "nb_classes": _CLASSES,
    "ngpus": _GPUS,
    "no_ema": "~methods.ema",
    "nproc_per_node": _GPUS,
    "num_classes": _CLASSES,
    "num_epochs": _EPOCHS,
    "num_gpus": _GPUS,
    "num_workers": "workers={}",
    "opt": "optimizer={}",
    "optimizer": "optimizer={}",
    "out_dir": _ROOT,
    "output": _ROOT,
    "output_dir": _ROOT,
    "path": _DATA,
    "patience": _PATIENCE,
    "precision": "precision.dtype={}",
    "pretrained": Meaning("recipe=finetune", "is what the recipe finetune is for"),
    "project": _ROOT,
    "randaug": "methods.randaugment={{}}",
    "random_erase": "methods.random_erasing.p={}",
    "recipe": "recipe={}",
    "reprob": "methods.random_erasing.p={}",
    "resolution": _SIDE,
    "resolve": "--cfg",
    "run_name": "run={}",
    "save_dir": _ROOT,
    "save_folder": _ROOT,
    "sched": "schedule={}",
    "scheduler": "schedule={}",
    "seed": "seed={}",
    "smoothing": "methods.label_smoothing.smoothing={}",
    "tensorboard": "log.to=[tensorboard]",
    "total_epochs": _EPOCHS,
    "train_crop_size": _SIDE,
    "val_crop_size": "data.eval_size={}",
    "val_resize_size": "data.eval_resize={}",
    "wandb": "log.to=[wandb]",
    "warmup_epochs": "schedule.warmup={}ep",
    "wd": "wd={}",
    "weight_decay": "wd={}",
    "weights": "model.weights={}",
    "workers": "workers={}",
    "world_size": _GPUS,
}

#: Verbs of others, and ours.
VERBS = {
    "bench": "measure",
    "benchmark": "measure",
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
}


def meaning_of(name: str, value: str) -> Meaning | None:
    """Return what a foreign flag or key means, with its value in place; None if it is unknown."""
    leaf = name.lstrip("-").lower().replace("-", "_").rpartition(".")[2]
    found = MEANINGS.get(leaf)
    if found is None:
        return None
    words, rule = found if isinstance(found, Meaning) else (found, "")
    if words == _GPUS and re.fullmatch(r"\d+(,\d+)+,?", value):
        chosen = value.rstrip(",")
        words = f"CUDA_VISIBLE_DEVICES={chosen} resnet-train ... gpus={chosen.count(',') + 1}"
        return Meaning(words, "takes a number of GPUs; which ones is said by the environment")
    if "{}" in words.replace("{{}}", "") and not value:
        return Meaning(words.format("VALUE"), "needs a value")
    if not words:
        return Meaning("", rule)
    if words.startswith("-"):
        return Meaning(words.format(shlex.quote(value)), rule)
    return Meaning(shlex.quote(words.format(value)), rule)
