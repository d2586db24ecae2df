"""A table of words of other programs, and what is typed here instead."""

from typing import NamedTuple


class Meaning(NamedTuple):
    """What to type, and what a reader from elsewhere should know."""

    words: str  # with {} for the value
    rule: str = ""


_DATA = "data={}"
_BATCH = "bs={}"
SIDE = "data.train_size={}"
_ROOT = "run.root={}"
_EPOCHS = "epochs={}"
GPUS = "gpus={}"
_CLASSES = Meaning("", "is not a setting: the classes are counted in the images")
_PATIENCE = Meaning("", "is not a setting: a run ends when its schedule does, or at stop_at_top1=")
AMP = Meaning("precision.dtype=auto", "is the default on a GPU: bf16, or fp16 on older ones")

DEVICE = "launch.device={}"
DTYPE = "precision.dtype={}"

_VERBOSE = "--verbose"
_CHECK = "--check"
_EVAL = Meaning("resnet-recipes eval last", "is a command of its own, for a trained network")
_RANKS = Meaning("", "is not needed: ranks find each other, also under torchrun and srun")
_LOGS = "log.interval={}ba"
_DECAY = Meaning("methods.ema.half_life=100ba", "is a half-life here: 0.693 / (1 - decay) batches")
_TASK = Meaning("", "is not a setting: resnet-train trains a classifier")
_VAL = Meaning("", "is not a setting: val/ is found beside train/ in data=")
_EVALUATES = "evaluation.interval={}ep"

_NODES = Meaning(
    "", "is not a setting: torchrun, srun or a job of 'resnet-recipes job' starts several nodes"
)

_LAST_RATE = Meaning("schedule.final=0.01", "is a share of the peak rate here")
_NO_METHOD = Meaning("", "is not a method here; 'resnet-recipes methods' lists them")
_NORMAL = Meaning("", "is not a setting: images are normalised as for ImageNet")
_ALWAYS = Meaning("", "is not a setting: the program does so where it helps")

#: By timm, torchvision's references, Lightning, Ultralytics, Composer, Hydra and habit.
MEANINGS: dict[str, str | Meaning] = {
    "a": "model.name={}",
    "aa": "methods.randaugment={{}}",
    "accelerator": DEVICE,
    "amp": AMP,
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
    "crop": SIDE,
    "cutmix": "methods.cutmix.alpha={}",
    "cutmix_alpha": "methods.cutmix.alpha={}",
    "data": _DATA,
    "data_dir": _DATA,
    "data_path": _DATA,
    "data_root": _DATA,
    "dataset": _DATA,
    "default_root_dir": _ROOT,
    "device": DEVICE,
    "devices": GPUS,
    "drop_path": "methods.stochastic_depth.drop_rate={}",
    "early_stopping": _PATIENCE,
    "ema": "methods.ema={{}}",
    "epochs": _EPOCHS,
    "experiment": "run={}",
    "fp16": "precision.dtype=fp16",
    "gpus": GPUS,
    "half": "precision.dtype=fp16",
    "image_size": SIDE,
    "img_size": SIDE,
    "imgsz": SIDE,
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
    "ngpus": GPUS,
    "no_ema": "~methods.ema",
    "nproc_per_node": GPUS,
    "num_classes": _CLASSES,
    "num_epochs": _EPOCHS,
    "num_gpus": GPUS,
    "num_workers": "workers={}",
    "opt": "optimizer={}",
    "optimizer": "optimizer={}",
    "out_dir": _ROOT,
    "output": _ROOT,
    "output_dir": _ROOT,
    "path": _DATA,
    "patience": _PATIENCE,
    "precision": DTYPE,
    "pretrained": Meaning(
        "model.weights=torchvision", "are weights to start from; the recipe finetune is made for it"
    ),
    "project": _ROOT,
    "randaug": "methods.randaugment={{}}",
    "random_erase": "methods.random_erasing.p={}",
    "recipe": "recipe={}",
    "reprob": "methods.random_erasing.p={}",
    "resolution": SIDE,
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
    "train_crop_size": SIDE,
    "val_crop_size": "data.eval_size={}",
    "val_resize_size": "data.eval_resize={}",
    "wandb": "log.to=[wandb]",
    "warmup_epochs": "schedule.warmup={}ep",
    "wd": "wd={}",
    "weight_decay": "wd={}",
    "weights": "model.weights={}",
    "workers": "workers={}",
    "world_size": GPUS,
    "fast_dev_run": _CHECK,
    "limit_train_batches": _CHECK,
    "overfit_batches": _CHECK,
    "max_steps": "max_duration={}ba ssr=1",
    "num_steps": "max_duration={}ba ssr=1",
    "max_iters": "max_duration={}ba ssr=1",
    "warmup": "schedule.warmup={}ep",
    "warmup_steps": "schedule.warmup={}ba",
    "val_split": "data.val_share={}",
    "validation_split": "data.val_share={}",
    "val_ratio": "data.val_share={}",
    "verbose": _VERBOSE,
    "debug": _VERBOSE,
    "v": _VERBOSE,
    "print_freq": _LOGS,
    "log_interval": _LOGS,
    "log_every_n_steps": _LOGS,
    "sync_bn": Meaning(
        "", "is not needed: batch.bn_size images share statistics on any number of GPUs"
    ),
    "dropout": "methods.stochastic_depth.drop_rate={}",
    "evaluate": _EVAL,
    "eval": _EVAL,
    "test_only": _EVAL,
    "validate": _EVAL,
    "eval_only": _EVAL,
    "resume": "--resume {}",
    "resume_from": "--resume {}",
    "load": "model.weights={}",
    "finetune": "model.weights={}",
    "freeze": "model.freeze=backbone model.weights=torchvision",
    "decay": _DECAY,
    "ema_decay": _DECAY,
    "model_ema_decay": _DECAY,
    "mode": _TASK,
    "task": _TASK,
    "train": _DATA,
    "use_ema": "methods.ema={{}}",
    "gpu": GPUS,
    "gpu_ids": GPUS,
    "log": "log.to=[{}]",
    "logger": "log.to=[{}]",
    "report_to": "log.to=[{}]",
    "strategy": _RANKS,
    "distributed": _RANKS,
    "ddp": _RANKS,
    "local_rank": _RANKS,
    "dist_url": _RANKS,
    "master_port": _RANKS,
    "train_dir": _DATA,
    "traindir": _DATA,
    "folder": _DATA,
    "root": _DATA,
    "images": _DATA,
    "epoch": _EPOCHS,
    "gradient_clip_val": "optimizer.clip_norm={}",
    "grad_clip": "optimizer.clip_norm={}",
    "val": _VAL,
    "val_dir": _VAL,
    "valdir": _VAL,
    "accumulate_grad_batches": Meaning(
        "batch.bn_size=128", "follows from bs= and batch.bn_size=, the images of one pass"
    ),
    "grad_accum_steps": Meaning(
        "batch.bn_size=128", "follows from bs= and batch.bn_size=, the images of one pass"
    ),
    "tta": "evaluation.flip=true",
    "dtype": DTYPE,
    "checkpoint_interval": "checkpoint.interval={}ep",
    "save_period": "checkpoint.interval={}ep",
    "save_freq": "checkpoint.interval={}ep",
    "eval_interval": _EVALUATES,
    "val_interval": _EVALUATES,
    "check_val_every_n_epoch": _EVALUATES,
    "random_seed": "seed={}",
    "manual_seed": "seed={}",
    "batchsize": _BATCH,
    "train_batch_size": _BATCH,
    "per_device_train_batch_size": _BATCH,
    "n_epochs": _EPOCHS,
    "nepochs": _EPOCHS,
    "num_train_epochs": _EPOCHS,
    "cpu": "launch.device=cpu",
    "cuda": "launch.device=cuda",
    "no_cuda": "launch.device=cpu",
    "loader": "data.backend={}",
    "bce": "methods.bce_loss={{}}",
    "nodes": _NODES,
    "nnodes": _NODES,
    "num_nodes": _NODES,
    "rdzv": _NODES,
    "train_batch": _BATCH,
    "val_batch_size": "batch.eval_size={}",
    "eval_batch_size": "batch.eval_size={}",
    "min_lr": _LAST_RATE,
    "lr_min": _LAST_RATE,
    "eta_min": _LAST_RATE,
    "lrf": "schedule.final={}",
    "optim": "optimizer={}",
    "drop": "methods.stochastic_depth.drop_rate={}",
    "hflip": "data.flip=true",
    "fliplr": "data.flip=true",
    "color_jitter": _NO_METHOD,
    "crop_pct": Meaning(
        "data.eval_resize=256 data.eval_size=224", "is eval_size by eval_resize, in pixels, here"
    ),
    "input_size": Meaning("data.train_size=224 data.eval_size=224", "is two settings here"),
    "mean": _NORMAL,
    "std": _NORMAL,
    "channels_last": _ALWAYS,
    "pin_mem": _ALWAYS,
    "pin_memory": _ALWAYS,
    "no_prefetcher": _ALWAYS,
    "persistent_workers": _ALWAYS,
    "use_multi_epochs_loader": _ALWAYS,
    "prefetch_factor": "data.prefetch={}",
    "torchcompile": "precision.compile=true",
    "native_amp": AMP,
    "amp_dtype": DTYPE,
    "dist_bn": Meaning(
        "", "is not needed: batch.bn_size images share statistics on any number of GPUs"
    ),
    "checkpoint_hist": "checkpoint.keep={}",
    "save_top_k": "checkpoint.keep={}",
    "save_every": "checkpoint.interval={}ep",
    "eval_metric": Meaning("", "is not a setting: top-1 accuracy is measured"),
    "cos_lr": "schedule=cosine",
    "limit_val_batches": _CHECK,
    "jobs": "workers={}",
    "d": _DATA,
    "profile": Meaning("", "is a command: resnet-recipes bottleneck"),
}
