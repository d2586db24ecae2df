"""Synthetic images generated from class and index, for tests and timing the trainer."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from resnet_recipes.base.errors import Note
from resnet_recipes.data.base import DataConfig, DataFacts, RawBatch
from resnet_recipes.data.loading import BatchSource
from resnet_recipes.data.order import BatchOrder

SYNTHETIC_CLASSES = 10
TRAIN_EXAMPLES = 128
EVAL_EXAMPLES = 50

#: Number of noise images; each example is a noise image plus the pattern of its class.
_NOISE_IMAGES = 64


class SyntheticImages:
    """Images of one size, on the device.

    Each class has a coarse pattern to learn; the noise changes with the epoch.
    """

    def __init__(self, image_size: int, classes: int = SYNTHETIC_CLASSES):
        self._classes = min(classes, SYNTHETIC_CLASSES)
        rng = np.random.default_rng(image_size)
        # patterns do not depend on the size
        coarse = np.random.default_rng(0).integers(
            64, 128, (SYNTHETIC_CLASSES, 4, 4, 3), dtype=np.uint8
        )
        cell = np.arange(image_size) * 4 // image_size
        self._patterns = _to_device(coarse[:, cell][:, :, cell])
        self._noises = _to_device(
            rng.integers(0, 128, (_NOISE_IMAGES, image_size, image_size, 3), dtype=np.uint8)
        )

    def batch(self, indices: np.ndarray, epoch: int) -> RawBatch:
        """Return examples of an epoch.

        The class is the index modulo the number of classes, at most SYNTHETIC_CLASSES.
        """
        labels = _to_device(indices % self._classes)
        noises = (indices // self._classes * 31 + epoch * 17) % _NOISE_IMAGES
        pixels = self._patterns[labels] + self._noises[_to_device(noises)]
        return RawBatch(pixels.permute(0, 3, 1, 2), labels)


class SyntheticBatches(BatchSource):
    """Generated batches."""

    def __init__(self, examples: int, classes: int, epoch: int | None = None):
        self.examples = examples
        self._classes = classes
        self._epoch = epoch  # fixed epoch of all images, or None

    def read(self, orders: Iterable[BatchOrder]) -> Iterator[RawBatch]:
        images = lru_cache(1)(SyntheticImages)
        return (
            images(order.image_size, self._classes).batch(
                order.indices, order.crop_epoch if self._epoch is None else self._epoch
            )
            for order in orders
        )

    def path(self, index: int) -> str:
        return f"synthetic image {index}"


def make_facts(config: DataConfig) -> DataFacts:
    """Return the facts about the generated images."""
    return DataFacts(
        "synthetic",
        Path(config.root or "synthetic"),
        TRAIN_EXAMPLES,
        EVAL_EXAMPLES,
        tuple(f"pattern{number}" for number in range(SYNTHETIC_CLASSES)),
        (Note("images are synthetic, so accuracies are meaningless"),),
        class_images=tuple(
            len(range(label, TRAIN_EXAMPLES, SYNTHETIC_CLASSES))
            for label in range(SYNTHETIC_CLASSES)
        ),
    )


def _to_device(array: np.ndarray) -> torch.Tensor:
    device = "cuda" if torch.cuda.is_initialized() else "cpu"
    return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)
