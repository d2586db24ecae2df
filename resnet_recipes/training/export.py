"""Export a trained network, and check that its target program computes what the network does."""

import secrets
import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from resnet_recipes.base.errors import NotReadyError, Problem, TrainingError
from resnet_recipes.data.normalize import normalize
from resnet_recipes.network.export import TARGETS, export, largest_difference
from resnet_recipes.network.folding import fold_batchnorm
from resnet_recipes.network.model_card import model_card
from resnet_recipes.network.network import Network
from resnet_recipes.training.trained import Trained

#: Images that an export is compared on.
IMAGES = 64

#: Share of the largest logit by which an export may differ: float32 sums in another order differ by
#: 1e-6 to 1e-5 of it.
_TOLERANCE = 1e-3


class Exported(NamedTuple):
    """What was written, and how it compares."""

    bytes: int
    folding: float | None  # largest difference of logits by folding BatchNorm; None: not folded
    comparison: str  # the largest difference to what the target program computes, and on what


def export_checked(trained: Trained, to: str, folder: Path, folds: bool) -> Exported:
    """Write a network for the program `to` and its model card into a new folder.

    The folder is whole or absent. Raises TrainingError if the program computes something else,
    NotReadyError if the folder cannot be written.
    """
    draft = folder.absolute().with_name(f".{folder.name}.{secrets.token_hex(8)}.part")
    try:
        draft.mkdir(parents=True)
        exported = _written(trained, to, draft, folds)
        draft.rename(folder)
        return exported
    except OSError as error:
        raise NotReadyError(
            [Problem("--out", str(folder), f"cannot be written: {error.strerror}")]
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _written(trained: Trained, to: str, folder: Path, folds: bool) -> Exported:
    images, which = _images(trained)
    about, folding = trained.network.about, None
    model = written = trained.model.to(memory_format=torch.contiguous_format)
    if folds:
        written = fold_batchnorm(model)
        folding = largest_difference(model, written, images)[0]
    difference, scale = largest_difference(
        model, export(Network(written, about), to, folder), images
    )
    size = sum(path.stat().st_size for path in folder.iterdir())
    if not difference <= _TOLERANCE * max(1.0, scale):
        raise TrainingError(
            f"{to} computes different logits: they differ by up to {difference:.2g} of "
            f"{scale:.2g} on {which}; nothing was written"
        )
    result = f"largest difference of logits {difference:.2g}, of {scale:.3g}, on {which}"
    said = f"Read by its own runtime after the export: {result}."
    card = model_card(about, to, TARGETS[to].use, said)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return Exported(size, folding, result)


def _images(trained: Trained) -> tuple[Tensor, str]:
    """Return normalised images [64, 3, S, S] to compare on, and which they are."""
    try:
        labelled, parts = trained.open_images(), []
    except NotReadyError:
        size = trained.recipe.data.eval_size
        drawn = torch.randint(
            256, (IMAGES, 3, size, size), generator=torch.Generator().manual_seed(0)
        )
        return normalize(drawn.to(torch.uint8)), f"{IMAGES} random images"
    try:
        for raw in labelled.batches():
            parts.append(normalize(raw.pixels))
            if sum(map(len, parts)) >= IMAGES:
                break
    finally:
        labelled.close()
    images = torch.cat(parts)[:IMAGES]
    return images, f"{len(images)} validation images"
