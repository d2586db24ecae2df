"""What a person most likely meant by a name that does not exist."""

import shlex
from collections.abc import Collection
from difflib import SequenceMatcher, get_close_matches

#: Other programs' names for our settings, and short names.
ALIASES = {
    "learning_rate": "optimizer.lr",
    "lr": "optimizer.lr",
    "base_lr": "optimizer.lr",
    "wd": "optimizer.weight_decay",
    "batch": "batch.global_size",
    "batch_size": "batch.global_size",
    "bs": "batch.global_size",
    "epochs": "max_duration",
    "num_epochs": "max_duration",
    "ssr": "scale_schedule_ratio",
    "crop": "data.train_size",
    "image_size": "data.train_size",
    "train_crop_size": "data.train_size",
    "val_resize_size": "data.eval_resize",
    "num_workers": "data.workers",
    "data_dir": "data.root",
    "path": "data.root",
    "loader": "data.backend",
    "arch": "model.name",
    "amp": "precision.dtype",
    "warmup_epochs": "schedule.warmup",
    "bce": "methods.bce_loss",
    "randaug": "methods.randaugment",
    "output_dir": "run.root",
    "ngpus": "launch.gpus",
    "num_gpus": "launch.gpus",
}

#: What is no setting because something else decides it: leaf names, and what to type.
ELSEWHERE = dict.fromkeys(
    ("nodes", "nnodes", "num_nodes", "rdzv"),
    "torchrun or srun starts several nodes, and 'resnet-recipes slurm NAME nodes=2' writes a job",
)


def did_you_mean(name: str, known: Collection[str], value: str = "") -> str:
    """Return "did you mean mild?" for the known name most like `name`, or "".

    `value` follows the name ("=1.0").
    """
    if elsewhere := ELSEWHERE.get(name.rsplit(".", 1)[-1]):
        return elsewhere
    meant = closest(name, known)
    return f"did you mean {shlex.quote(meant + value)}?" if meant else ""


def closest(name: str, known: Collection[str]) -> str:
    """Return the known dotted name that is most like `name`, or ""."""
    name = name[:80].lower()
    leaf = name.rsplit(".", 1)[-1]
    known = [key for key in known if not name.startswith(f"{key}.")]  # not its own section
    if ALIASES.get(leaf) in known:
        return ALIASES[leaf]
    if whole := get_close_matches(name, known, n=1, cutoff=0.72):
        return whole[0]
    same_leaf = [key for key in known if key.rsplit(".", 1)[-1] == leaf]
    near_leaf = [
        key for key in known if SequenceMatcher(None, key.rsplit(".", 1)[-1], leaf).ratio() >= 0.8
    ]
    return max(
        same_leaf or near_leaf, key=lambda key: SequenceMatcher(None, key, name).ratio(), default=""
    )
