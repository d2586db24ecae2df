"""One random image operation of random strength, for every image."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from PIL import Image

from resnet_recipes.methods.base import Method, SampleAugment


@dataclass
class TrivialAugment(Method):
    """Apply one random operation of random strength to each image (Mueller and Hutter, 2021, arXiv:2103.10158).

    torchvision's TrivialAugmentWide, as it is: 14 operations including none at all, 31 strengths, nearest-neighbour sampling.
    Runs on decoded images in the loader's workers; nothing to tune.

    Cost: one Pillow operation for each image, in the workers. Gain: +0.3 points in the baseline
    (PyTorch blog, "How to train state-of-the-art models using TorchVision's latest primitives", 2021).
    Hurts: loaders that are short of CPU; `randaugment` can run on the device instead.
    """

    name: ClassVar[str] = "trivial_augment"
    conflicts: ClassVar[frozenset[str]] = frozenset({"randaugment"})

    def augment_sample(self) -> SampleAugment:
        from torchvision.transforms import TrivialAugmentWide  # seconds to import, and every plan imports this file

        return _Seeded(TrivialAugmentWide())


@dataclass(frozen=True)
class _Seeded:
    """Run a torchvision transform on an image's own randomness; torch's global generator is left as it was."""

    transform: Callable[[Image.Image], Image.Image]

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            return self.transform(image)
