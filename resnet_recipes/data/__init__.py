"""The images of a run: find them, and open them through the backend that reads them."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.paths import is_fetched
from resnet_recipes.data import remote
from resnet_recipes.data.base import DataConfig, DataFacts, SampleAugment, Share
from resnet_recipes.data.loading.loader import EvalLoader, TrainLoader
from resnet_recipes.data.machine import oversubscription
from resnet_recipes.data.normalize import normalize
from resnet_recipes.data.remote.copy import Progress, Stopped
from resnet_recipes.data.root import SPLITS, root_problem

__all__ = [
    "DataConfig",
    "DataFacts",
    "Share",
    "kept",
    "local",
    "measure",
    "normalize",
    "open_eval",
    "open_train",
]

_MODULES = {
    "torchvision": "torchvision_backend",
    "ffcv": "ffcv_backend",
    "synthetic": "synthetic",
}


def measure(config: DataConfig, tell: Callable[[str], None] = lambda line: None) -> DataFacts:
    """Survey the images at `config.root` and choose the backend; takes seconds for ImageNet.

    `tell` shows progress.

    Decodes nothing. Raises NotReadyError with all problems found.
    """
    if _is_remote(config):
        outline = remote.outlined(config)
        try:
            facts = measure(replace(config, root=str(outline.root)), tell)
        except NotReadyError as error:
            raise error.elsewhere(outline.root, config.root) from None
        return replace(facts, notes=(outline.note, *facts.notes))
    backend = config.backend
    if backend == "synthetic":
        return _module(backend).measure(config, tell)
    if problem := root_problem(config.root):
        raise NotReadyError([problem])
    files = []
    if backend == "auto":
        has_betons = all((Path(config.root) / f"{split}.beton").exists() for split in SPLITS)
        backend = "ffcv" if has_betons else "torchvision"
        files = ["images are decoded from their files: no train.beton and val.beton"] * (
            not has_betons
        )
    facts = _module(backend).measure(config, tell)
    notes = (*facts.notes, *oversubscription(config))
    return replace(facts, notes=notes, details=(*files, *facts.details))


def local(
    config: DataConfig,
    progress: Progress = lambda *_: None,
    stopped: Stopped = lambda: False,
) -> DataConfig | None:
    """Return the settings with `root` on this machine: remote images are fetched.

    One process of a machine fetches, others wait; `progress` is told of it in megabytes. None if
    it was told to stop: what has come is kept. Raises NotReadyError.
    """
    if not _is_remote(config):
        return config
    root = remote.staged(config, progress, stopped)
    return None if root is None else replace(config, root=str(root))


def kept(config: DataConfig) -> DataConfig | None:
    """Return the settings with `root` on this machine, without fetching anything.

    None if images are remote and there is no whole copy of them. Raises NotReadyError.
    """
    if not _is_remote(config):
        return config
    root = remote.kept(config)
    return None if root is None else replace(config, root=str(root))


def open_train(
    config: DataConfig, facts: DataFacts, share: Share, augment: SampleAugment | None = None
) -> TrainLoader:
    """Open this rank's training images.

    Backends that decode image by image apply `augment` after crop and flip.
    """
    config = replace(config, root=str(facts.root))
    return TrainLoader(
        config, share, _module(facts.backend).open_train(config, facts, share, augment)
    )


def open_eval(config: DataConfig, facts: DataFacts, share: Share) -> EvalLoader:
    """Open this rank's evaluation images."""
    config = replace(config, root=str(facts.root))
    return EvalLoader(config, share, _module(facts.backend).open_eval(config, facts, share))


def _is_remote(config: DataConfig) -> bool:
    return config.backend != "synthetic" and is_fetched(config.root)


def _module(backend: str) -> ModuleType:
    """Import a backend on demand: each needs its own heavy packages."""
    return import_module(f"resnet_recipes.data.{_MODULES[backend]}")
