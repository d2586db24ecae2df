"""The images of a run: find them, and open them through the backend that reads them."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch

from resnet_recipes.data.base import NO_GPU, DataConfig, DataFacts, EvalLoader, SampleAugment, Share, TrainLoader
from resnet_recipes.data.loading import loader
from resnet_recipes.data.normalize import normalize
from resnet_recipes.data.root import root_problem
from resnet_recipes.data.workers import oversubscription
from resnet_recipes.errors import NotReadyError

__all__ = ["DataConfig", "DataFacts", "Share", "measure", "normalize", "open_eval", "open_train"]

_MODULES = {"torchvision": "torchvision_backend", "ffcv": "ffcv_backend", "gpu": "gpu_backend",
            "synthetic": "synthetic"}


def measure(config: DataConfig, with_cost: bool = False, tell: Callable[[str], None] = lambda line: None) -> DataFacts:
    """Survey the images at `config.root` and choose the backend; takes seconds for ImageNet. `tell` shows progress.

    Decodes nothing, except a few images if `with_cost` is set and `auto` finds no .beton files. Raises NotReadyError
    with all problems found.
    """
    problems = [NO_GPU] if config.decode == "gpu" and not torch.cuda.device_count() else []
    if config.backend != "synthetic" and (problem := root_problem(config.root)):
        problems.append(problem)
    if problems:
        raise NotReadyError(problems)
    backend, why = _chosen(config) if config.backend == "auto" else (config.backend, "")
    facts = _module(backend).measure(config, tell)
    if why:
        cost = ""
        if with_cost and config.decode == "cpu":
            cost = f", {1000 * _module(backend).seconds_per_image(config, facts):.1f} ms of CPU each on this machine"
        note = f"images are decoded from their files (torchvision backend){cost}: {why}"
        facts = replace(facts, notes=(note, *facts.notes))
    return facts if backend == "synthetic" else replace(facts, notes=(*facts.notes, *oversubscription(config)))


def open_train(config: DataConfig, facts: DataFacts, share: Share, augment: SampleAugment | None = None) -> TrainLoader:
    """Open this rank's training images; backends that decode image by image apply `augment` after crop and flip."""
    return loader.TrainLoader(config, share, _module(facts.backend).open_train(config, facts, share, augment))


def open_eval(config: DataConfig, facts: DataFacts, share: Share) -> EvalLoader:
    """Open this rank's evaluation images."""
    return loader.EvalLoader(config, share, _module(facts.backend).open_eval(config, facts, share))


def _chosen(config: DataConfig) -> tuple[str, str]:
    """Return the backend for `auto` and, if it is not ffcv, the reason."""
    root = Path(config.root)
    if _has(root, "train.beton", "val.beton"):
        return "ffcv", ""
    return "torchvision", "no train.beton and val.beton"


def _has(root: Path, *names: str) -> bool:
    return all((root / name).exists() for name in names)


def _module(backend: str) -> ModuleType:
    """Import a backend on demand: each needs its own heavy packages."""
    return import_module(f"resnet_recipes.data.{_MODULES[backend]}")
