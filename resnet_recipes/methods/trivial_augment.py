"""One random image operation of random strength, for every image."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from PIL import Image

from resnet_recipes.methods.base import Method, SampleAugment


@dataclass
class TrivialAugment(Method):
    """Apply one random operation of random strength to each image (Mueller and Hutter, 2021, arXiv:2103.10158).

    torchvision's TrivialAugmentWide, as it is: 14 operations including none at all, 31 strengths, nearest-neighbour
    sampling. Runs on decoded images in the loader's workers; nothing to tune.
    """

    name: ClassVar[str] = "trivial_augment"
    cost: ClassVar[str] = "one Pillow operation for each image, in the workers."
    gain: ClassVar[str] = (
        "+0.3 points in the baseline (PyTorch blog, \"How to train state-of-the-art models using TorchVision's latest "
        "primitives\", 2021)."
    )
    hurts: ClassVar[str] = "loaders that are short of CPU; `randaugment` can run on the device instead."
    conflicts: ClassVar[frozenset[str]] = frozenset({"randaugment"})

    def augment_sample(self) -> SampleAugment:
        return _Wide()


class _Wide:
    """TrivialAugmentWide on an image's own randomness; torch's generator, which threads share, is not used."""

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        from torchvision.transforms import TrivialAugmentWide  # seconds to import, and every plan imports this file
        from torchvision.transforms.autoaugment import InterpolationMode, _apply_op

        space = TrivialAugmentWide()._augmentation_space(31)
        name = list(space)[rng.integers(len(space))]
        strengths, signed = space[name]
        strength = float(strengths[rng.integers(len(strengths))]) if strengths.ndim else 0.0
        if signed and rng.integers(2):
            strength = -strength
        return _apply_op(image, name, strength, InterpolationMode.NEAREST, fill=None)
