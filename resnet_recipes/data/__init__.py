"""The images of a run: find them, and open them with the right backend."""

import hashlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from resnet_recipes.augment import ImageAugment
from resnet_recipes.base.errors import Command, Hint, Note, NotReadyError, RecipeError
from resnet_recipes.base.paths import is_fetched
from resnet_recipes.base.text import Progress, Say, do_nothing
from resnet_recipes.data import remote, synthetic
from resnet_recipes.data.base import Batching, DataConfig, DataFacts, normalize
from resnet_recipes.data.beton.samples import Samples, make_quasi_random_order, open_samples
from resnet_recipes.data.files import Files
from resnet_recipes.data.images import build_eval_pipeline, build_train_pipeline
from resnet_recipes.data.loading import EvalLoader, TrainLoader
from resnet_recipes.data.loading.slots import find_oversubscription
from resnet_recipes.data.native import describe, find_decoder_fault
from resnet_recipes.data.remote.local_copy import IsStopped
from resnet_recipes.data.root import SPLITS, find_root_problem
from resnet_recipes.data.survey import survey_betons, survey_files
from resnet_recipes.data.synthetic import SyntheticBatches

__all__ = [
    "Batching",
    "DataConfig",
    "DataFacts",
    "fetch",
    "normalize",
    "open_eval",
    "open_train",
    "survey_images",
]


def survey_images(config: DataConfig, on_progress: Say = do_nothing) -> DataFacts:
    """Survey the images at `config.root` and choose the backend.

    Takes seconds for ImageNet and decodes nothing. `on_progress` gets lines of text. Raises
    NotReadyError if a run cannot use the images, RecipeError if `config` is not a DataConfig.
    """
    if not isinstance(config, DataConfig):
        fix = 'DataConfig(root="images")'
        raise RecipeError.of("config", None, f"must be a DataConfig, not {config!r}", fix)
    if config.backend == "synthetic":
        return synthetic.make_facts(config)
    if is_fetched(config.root):
        root, remote_note = remote.fetch_outline(config)
        try:
            facts = survey_images(replace(config, root=str(root)), on_progress)
        except NotReadyError as error:
            raise error.with_path_replaced(root, config.root) from None

        def replace_root(text: str) -> str:
            return text.replace(str(root), config.root)

        local_notes = (note._replace(text=replace_root(note.text)) for note in facts.notes)
        return replace(
            facts,
            notes=(Note(remote_note), *local_notes),
            details=tuple(map(replace_root, facts.details)),
        )
    NotReadyError.raise_if_any([find_root_problem(config.root)])
    backend, details = config.backend, []
    if backend == "auto":
        has_betons = all((Path(config.root) / f"{split}.beton").exists() for split in SPLITS)
        backend = "ffcv" if has_betons else "torchvision"
        if not has_betons:
            details.append("images are decoded from their files: no train.beton and val.beton")
    facts = survey_betons(config) if backend == "ffcv" else survey_files(config, on_progress)
    notes = [*facts.notes]
    details = [*details, *facts.details]
    if why := find_decoder_fault():
        text = (
            f"JPEGs are decoded in Python, at less than 40% of the speed: the native decoder {why}"
        )
        notes.append(Note(text, Command("resnet-recipes doctor native")))
    else:
        details.append(f"JPEGs are decoded natively ({describe()})")
    notes += find_oversubscription(config)
    return replace(facts, notes=tuple(notes), details=tuple(details))


def require_trusted_url(config: DataConfig, changes: Sequence[str], command: str = "") -> None:
    """Raise NotReadyError for remote images whose URL comes only from a run folder.

    The run folder may come from anyone. Its URL is requested and its cache is written only if this
    machine fetched the images before, or if they are among the `changes` of the user's `command`.
    """
    if config.backend == "synthetic" or not is_fetched(config.root) or remote.has_copy(config):
        return
    values = {"data": ("data.root", config.root)}
    if config.cache:
        values["data.cache"] = "data.cache", config.cache
    typed = {change.partition("=")[0] for change in changes}
    if all({short, key} & typed for short, (key, _) in values.items()):
        return
    clause = "comes from the run folder alone, and none of its images are on this machine"
    settings = [shlex.quote(f"{short}={value}") for short, (_, value) in values.items()]
    fix = (type(command)(" ".join([command, *settings]).lstrip()), Hint("if you trust it"))
    raise NotReadyError.of("data.root", config.root, clause, fix)


def fetch(
    config: DataConfig,
    progress: Progress = do_nothing,
    stopped: IsStopped = lambda: False,
) -> DataConfig | None:
    """Return the settings with `root` on this machine; fetch remote images.

    One process per machine fetches, and the others wait; `progress` counts megabytes. Returns None
    if fetching was stopped; fetched files are kept. Raises NotReadyError if images cannot be
    fetched or stored.
    """
    if config.backend == "synthetic" or not is_fetched(config.root):
        return config
    root = remote.fetch_copy(config, progress, stopped)
    return None if root is None else replace(config, root=str(root))


def open_train(
    config: DataConfig, facts: DataFacts, batching: Batching, augment: ImageAugment | None = None
) -> TrainLoader:
    """Open this rank's training images.

    Backends that decode images one by one apply `augment` after crop and flip. Raises NotReadyError
    if the images cannot be read or differ from the facts.
    """
    if facts.backend == "synthetic":
        return TrainLoader(
            config, batching, SyntheticBatches(facts.train_examples, len(facts.classes))
        )
    source = _open_source(config, facts, "train")
    pipeline = build_train_pipeline(
        source, config, batching, augment, _name_shared_memory(config, facts, "train")
    )
    if config.order == "quasi_random" and isinstance(source, Samples):
        pipeline.order_epoch = make_quasi_random_order(source.beton)
    return TrainLoader(config, batching, pipeline)


def open_eval(config: DataConfig, facts: DataFacts, batching: Batching) -> EvalLoader:
    """Open this rank's evaluation images.

    Raises NotReadyError if they cannot be read or differ from the facts.
    """
    if facts.backend == "synthetic":
        images = SyntheticBatches(facts.eval_examples, len(facts.classes), epoch=-1)
        return EvalLoader(config, batching, images)
    source = _open_source(config, facts, "val")
    name = _name_shared_memory(config, facts, "val")
    return EvalLoader(config, batching, build_eval_pipeline(source, config, batching, name))


def _open_source(config: DataConfig, facts: DataFacts, split: str) -> Samples | Files:
    """Return the images of a split. Raises NotReadyError unless they match the facts."""
    digest = facts.train_digest if split == "train" else facts.eval_digest
    if facts.backend == "ffcv":
        return open_samples(facts.root / f"{split}.beton", digest)
    return Files.of(replace(config, root=str(facts.root)), split, digest)


def _name_shared_memory(config: DataConfig, facts: DataFacts, split: str) -> str:
    """Return the name under which processes share the shrunk images of a split."""
    key = (os.path.realpath(facts.root), facts.digest, split, config.memory_pixels, os.geteuid())
    return f"resnet-recipes {hashlib.sha256(repr(key).encode()).hexdigest()[:24]}"
