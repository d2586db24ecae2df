"""Check train.beton and val.beton before a run starts."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from resnet_recipes.base.errors import NotReadyError, Problem
from resnet_recipes.base.text import byte_size
from resnet_recipes.data.base import DataConfig, DataFacts
from resnet_recipes.data.beton import Beton, pair_problems
from resnet_recipes.data.beton.samples import (
    Samples,
    fits_memory,
    open_samples,
    quasi_random_problem,
)
from resnet_recipes.data.machine import available_memory
from resnet_recipes.data.order import imbalance


def survey(config: DataConfig) -> DataFacts:
    """Open both files and check that they match; takes seconds, decodes nothing.

    Raises NotReadyError with all problems found.
    """
    root = Path(config.root)
    train, val = open_samples(root / "train.beton"), open_samples(root / "val.beton")
    NotReadyError.refuse(_problems(config, train.beton, val.beton))
    return DataFacts(
        "ffcv",
        root,
        len(train),
        len(val),
        train.beton.classes,
        tuple(_notes(config, train, val.beton)),
        train.digest,
        val.digest,
        tuple(np.bincount(train.beton.labels, minlength=len(train.beton.classes)).tolist()),
        (
            ("train.beton fits into memory: os_cache=true, read from disk once",)
            if fits_memory(train.beton)
            else ()
        ),
    )


def _problems(config: DataConfig, train: Beton, val: Beton) -> Iterator[Problem]:
    """Yield why these two files cannot be used with these settings."""
    yield from pair_problems(train, val)
    if config.val_share:
        rule = "applies only to image files; val.beton already exists"
        fix = "resnet-recipes convert SRC DST val_share=0.1"
        yield Problem("data.val_share", config.val_share, rule, fix)
    if config.on_bad_image == "skip":
        rule = (
            "applies only to image files; if one sample of a .beton file is damaged, the file "
            "must be made again"
        )
        yield Problem("data.on_bad_image", "skip", rule, "data.on_bad_image=error")
    if config.order == "quasi_random" and (problem := quasi_random_problem(train)):
        yield problem


def _notes(config: DataConfig, samples: Samples, val: Beton) -> Iterator[str]:
    """Yield what a user should know about these files on this machine."""
    train = samples.beton
    yield from imbalance(np.bincount(train.labels), config)
    if not fits_memory(train):
        hint = (
            ""
            if config.order == "quasi_random"
            else "; data.order=quasi_random reads larger pieces"
        )
        yield (
            f"train.beton ({byte_size(train.content.size)}) does not fit into memory "
            f"({byte_size(available_memory())} free): os_cache=false, read every epoch{hint}"
        )
    if samples.small:
        yield (
            "crops twice as large as their output, or larger, are read from "
            f"{samples.small.path.name}"
        )
    for beton in (train, val):
        if beton.sidecar is None:
            yield (
                f"{beton.path.name} has no sidecar (not made by resnet-recipes convert): no class "
                "names, and damage may go unnoticed"
            )
