"""Paste boxes from one example into another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.base.limits import Bounds
from resnet_recipes.methods.base import Batch, Method, Now, send
from resnet_recipes.methods.mixup import blend_targets


@dataclass
class CutMix(Method):
    """Paste boxes of other examples and mix targets by area (Yun et al., 2019, arXiv:1905.04899).

    Draws one box and one permutation per step and rank. The box has the image's aspect ratio,
    covers a fraction of its area drawn from Beta(alpha, alpha), is centred anywhere and clipped at
    the border; the targets are mixed by the clipped area. The partner's label is not smoothed, as
    in mixup.
    """

    name: ClassVar[str] = "cutmix"
    cost: ClassVar[str] = "one copy of the batch."
    gain: ClassVar[str] = (
        '+0.3 points on top of mixup at 600 epochs (PyTorch blog, "How to train state-of-the-art '
        "models using "
        "TorchVision's latest primitives\", 2021)."
    )
    avoid_when: ClassVar[str] = (
        "Mixup can be used instead: in Hot's prototype it was better by 0.5 to 0.7 points "
        "(MosaicML, Mosaic ResNet deep dive, Table 4)."
    )
    conflicts: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("mixup", "mixup_or_cutmix"), "both mix images"
    )
    changes: ClassVar[str] = "mixes"
    # concentration of the Beta distribution, above 0
    alpha: Annotated[float, Bounds(above=0, fix="'~methods.cutmix'")] = 1.0

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        rows, cols, share = box(batch.images, self.alpha, now.rng)
        order = send(now.rng.permutation(len(batch.labels)), batch.labels.device)
        images = pasted(batch.images, batch.images[..., rows, cols][order], rows, cols)
        return batch._replace(
            images=images,
            targets=blend_targets(batch, order, share),
            taught=batch.taught_with(lambda rows: rows[order], share),
        )


def box(images: Tensor, alpha: float, rng: np.random.Generator) -> tuple[slice, slice, float]:
    """Draw the rows and columns of a box in [N, 3, H, W] images.

    Return them and the box's share of the image.
    """
    height, width = images.shape[-2:]
    side = np.sqrt(rng.beta(alpha, alpha))
    rows, cols = _span(height, side, rng), _span(width, side, rng)
    return rows, cols, (rows.stop - rows.start) * (cols.stop - cols.start) / (height * width)


def pasted(images: Tensor, pieces: Tensor, rows: slice, cols: slice) -> Tensor:
    """Return `images` with `pieces` in the box, in the same memory format."""
    images = images.clone(memory_format=torch.preserve_format)
    images[..., rows, cols] = pieces
    return images


def _span(size: int, side: float, rng: np.random.Generator) -> slice:
    """Return `side * size` lines, an even number, about a random centre, clipped at borders."""
    centre, half = int(rng.integers(size)), int(size * side) // 2
    return slice(max(0, centre - half), min(size, centre + half))
