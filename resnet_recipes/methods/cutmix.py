"""Paste boxes from one example into another."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.base.limits import Positive
from resnet_recipes.methods.base import Batch, Method, Now, copy_to_device
from resnet_recipes.methods.mixup import mix_labels


@dataclass
class CutMix(Method):
    """Paste boxes of other examples and mix targets by area (Yun et al., 2019, arXiv:1905.04899).

    The method samples one box and one permutation per step and rank. The box has the aspect ratio
    of the image. It covers a fraction of the area, sampled from Beta(alpha, alpha). It is centered
    anywhere and clipped at the border. Targets are mixed by the clipped area. As in mixup, the
    partner's label is not smoothed.
    """

    name = "cutmix"
    cost = "one copy of the batch."
    gain = (
        "+0.3 points on top of mixup at 600 epochs, combined as `mixup_or_cutmix` (PyTorch blog, "
        '"How to train state-of-the-art models using TorchVision\'s latest primitives", 2021).'
    )
    avoid_when = (
        "You train a MosaicML recipe: in the prototype of Hot, mixup was 0.5 to 0.7 points better "
        "(MosaicML, Mosaic ResNet deep dive, Table 4)."
    )
    group = "mix images"
    changes = "mixes"
    # concentration of the Beta distribution, above 0
    alpha: Positive = 1.0

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        rows, cols, weight = sample_box(batch.images, self.alpha, now.rng)
        order = copy_to_device(now.rng.permutation(len(batch.labels)), batch.labels.device)
        images = paste(batch.images, batch.images[..., rows, cols][order], rows, cols)
        return mix_labels(batch._replace(images=images), order, weight)


class Box(NamedTuple):
    """A box in an image."""

    rows: slice
    cols: slice
    area_fraction: float  # fraction of the image's area


def sample_box(images: Tensor, alpha: float, rng: np.random.Generator) -> Box:
    """Return a random box in [N, 3, H, W] images."""
    height, width = images.shape[-2:]
    fraction = np.sqrt(rng.beta(alpha, alpha))
    rows = _sample_span(height, fraction, rng)
    cols = _sample_span(width, fraction, rng)
    area = (rows.stop - rows.start) * (cols.stop - cols.start)
    return Box(rows, cols, area / (height * width))


def paste(images: Tensor, pieces: Tensor, rows: slice, cols: slice) -> Tensor:
    """Return `images` with `pieces` in the box, in the same memory format."""
    images = images.clone(memory_format=torch.preserve_format)
    images[..., rows, cols] = pieces
    return images


def _sample_span(size: int, fraction: float, rng: np.random.Generator) -> slice:
    """Return a slice of `fraction * size` pixels, rounded to even, at a random center, clipped."""
    center = int(rng.integers(size))
    half = int(size * fraction) // 2
    return slice(max(0, center - half), min(size, center + half))
