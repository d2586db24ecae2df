"""One random operation of random strength for each image."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from resnet_recipes.augment import ImageAugment
from resnet_recipes.methods.base import Method
from resnet_recipes.methods.image_ops import ENHANCERS, RandomOps, SampledOp


@dataclass
class TrivialAugment(Method):
    """Apply one random operation to each image (Mueller and Hutter, 2021, arXiv:2103.10158).

    The method matches torchvision TrivialAugmentWide with bilinear sampling, as in the torchvision
    references. It has 14 operations including the identity, 11 of them with 31 strengths. It runs
    on decoded images in the loader workers.
    """

    name = "trivial_augment"
    cost = "one Pillow operation per image, in the workers."
    gain = (
        '+0.3 points at 90 epochs (PyTorch blog, "How to train state-of-the-art models using '
        "TorchVision's latest primitives\", 2021)."
    )
    avoid_when = "The CPU limits the loader."
    group = "choose operations"

    def augment_image(self) -> ImageAugment:
        return RandomOps(_sample)


@cache
def _make_space() -> dict[str, tuple[tuple[float, ...], bool]]:
    """Return each operation's 31 values, or none without strength, and whether signs vary."""

    def space_evenly(first: float, last: float) -> list[float]:
        return torch.linspace(first, last, 31).tolist()  # float32, as in torchvision

    # torchvision turns a slope into an angle in degrees and back
    angles = [math.degrees(math.atan(slope)) for slope in space_evenly(0, 0.99)]
    slopes = tuple(math.tan(math.radians(angle)) for angle in angles)
    offsets = tuple(-int(pixels) for pixels in space_evenly(0, 32))
    factors = tuple(space_evenly(0, 0.99))  # changes that are added to 1
    return {
        "identity": ((), False),
        "shear_x": (slopes, True),
        "shear_y": (slopes, True),
        "translate_x": (offsets, True),
        "translate_y": (offsets, True),
        "rotate": (tuple(space_evenly(0, 135)), True),
        "brightness": (factors, True),
        "color": (factors, True),
        "contrast": (factors, True),
        "sharpness": (factors, True),
        "posterize": (tuple(8 - round(number / 5) for number in range(31)), False),
        "solarize": (tuple(map(math.ceil, space_evenly(255, 0))), False),
        "autocontrast": ((), False),
        "equalize": ((), False),
    }


def _sample(_: int, rng: np.random.Generator) -> Iterator[SampledOp]:
    """Sample an operation and its value, in the unit of `IMAGE_OPS`; none for the identity."""
    name = list(_make_space())[rng.integers(len(_make_space()))]
    values, signed = _make_space()[name]
    value = values[rng.integers(len(values))] if values else 0.0
    if signed and rng.integers(2):
        value = -value
    if name != "identity":
        yield SampledOp(name, 1 + value if name in ENHANCERS else value)
