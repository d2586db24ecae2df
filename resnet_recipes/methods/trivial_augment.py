"""One random operation of random strength for each image."""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from PIL import Image

from resnet_recipes.methods.base import Method, SampleAugment
from resnet_recipes.methods.image_ops import turn


@dataclass
class TrivialAugment(Method):
    """Apply one random operation of random strength to each image (Mueller and Hutter, 2021, arXiv:2103.10158).

    The same as torchvision's TrivialAugmentWide: 14 operations including the identity, 31
    strengths, nearest-neighbour sampling. Runs on decoded images in the loader's workers; nothing
    to tune.
    """

    name: ClassVar[str] = "trivial_augment"
    cost: ClassVar[str] = "one Pillow operation per image, in the workers."
    gain: ClassVar[str] = (
        '+0.3 points over the baseline (PyTorch blog, "How to train state-of-the-art models '
        "using TorchVision's "
        'latest primitives", 2021).'
    )
    avoid_when: ClassVar[str] = (
        "The loader is short of CPU: `randaugment` can run on the device instead."
    )
    conflicts: ClassVar[frozenset[str]] = frozenset({"randaugment"})

    def augment_sample(self) -> SampleAugment:
        return _Wide()


class _Wide:
    """TrivialAugmentWide driven by the image's own generator, not by torch's, which threads share."""

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        # Imported here because it takes seconds and every command imports this file.
        from torchvision.transforms.autoaugment import InterpolationMode, _apply_op

        return _apply_op(image, *_drawn(rng), InterpolationMode.NEAREST, fill=None)

    def steps(self, side: int, rng: np.random.Generator) -> list[tuple[str, tuple[float, ...]]]:
        """Return the operation for the native decoder."""
        name, strength = _drawn(rng)
        # there and back, as in torchvision
        slope = math.tan(math.radians(math.degrees(math.atan(strength))))
        matrices = {
            "ShearX": (1, slope, 0, 0, 1, 0),
            "ShearY": (1, 0, 0, slope, 1, 0),
            "Rotate": turn(strength, side),
            "TranslateX": (1, 0, -int(strength), 0, 1, 0),
            "TranslateY": (1, 0, 0, 0, 1, -int(strength)),
        }
        if name in matrices:
            return [("affine_nearest", matrices[name])]
        enhanced = name in ("Brightness", "Color", "Contrast", "Sharpness")
        return (
            []
            if name == "Identity"
            else [(name.lower(), (1 + strength if enhanced else strength,))]
        )


@cache
def _space() -> dict[str, tuple[tuple[float, ...], bool]]:
    """Return each operation's strengths and whether its sign is random."""
    from torchvision.transforms import TrivialAugmentWide

    space = TrivialAugmentWide()._augmentation_space(31)
    return {
        name: (tuple(strengths.tolist()) if strengths.ndim else (), signed)
        for name, (strengths, signed) in space.items()
    }


def _drawn(rng: np.random.Generator) -> tuple[str, float]:
    """Draw an operation and its strength."""
    name = list(_space())[rng.integers(len(_space()))]
    strengths, signed = _space()[name]
    strength = float(strengths[rng.integers(len(strengths))]) if strengths else 0.0
    return name, -strength if signed and rng.integers(2) else strength
