"""Images without files: drawn from the class and the index, for tests, smoke runs and measuring the trainer alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from resnet_recipes.data import order
from resnet_recipes.data.base import DataConfig, DataFacts, RawBatch, SampleAugment, Share

CLASSES = 10
TRAIN_EXAMPLES = 128
EVAL_EXAMPLES = 50

#: Noise images; each example shows one of them over the pattern of its class.
_NOISES = 64


class Images:
    """Images of one size: a coarse pattern per class, so that a model can learn them, and noise that changes every epoch."""

    def __init__(self, pixels: int):
        rng = np.random.default_rng(pixels)
        coarse = np.random.default_rng(0).integers(64, 128, (CLASSES, 4, 4, 3), dtype=np.uint8)       # the same at every size
        place = np.arange(pixels) * 4 // pixels
        self._patterns = coarse[:, place][:, :, place]
        self._noises = rng.integers(0, 128, (_NOISES, pixels, pixels, 3), dtype=np.uint8)

    def batch(self, indices: np.ndarray, epoch: int) -> RawBatch:
        """Return examples of an epoch; the class is index modulo CLASSES."""
        labels = indices % CLASSES
        noise = (indices // CLASSES * 31 + epoch * 17) % _NOISES
        pixels = self._patterns[labels] + self._noises[noise]
        return RawBatch(torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(labels))


class TrainLoader:
    """Endless drawn batches; see data.base.TrainLoader."""

    skipped = ()

    def __init__(self, config: DataConfig, facts: DataFacts, share: Share):
        self.examples = facts.train_examples
        self.steps_per_epoch = order.steps_per_epoch(share, self.examples)
        self._config, self._share = config, share

    def batches(self, first_step: int = 0) -> Iterator[RawBatch]:
        """Yield the batches from `first_step` on, without end."""
        images: dict[int, Images] = {}
        for job in order.train_jobs(self._config, self._share, self.examples, first_step):
            if job.pixels not in images:
                images = {job.pixels: Images(job.pixels)}
            yield images[job.pixels].batch(job.indices, job.epoch)

    def close(self) -> None:
        """Do nothing: there are no workers."""


class EvalLoader:
    """Drawn evaluation batches; see data.base.EvalLoader."""

    def __init__(self, config: DataConfig, facts: DataFacts, share: Share):
        self.examples = facts.eval_examples
        self._config, self._share = config, share

    def batches(self) -> Iterator[RawBatch]:
        """Yield this rank's evaluation batches, the last one as short as it is."""
        images = Images(self._config.eval_size)
        return (images.batch(job.indices, epoch=-1) for job in order.eval_jobs(self._config, self._share, self.examples))

    def close(self) -> None:
        """Do nothing: there are no workers."""


def measure(config: DataConfig) -> DataFacts:
    """Return the facts of the drawn images; nothing can be wrong with them."""
    return DataFacts("synthetic", Path(config.root or "synthetic"), TRAIN_EXAMPLES, EVAL_EXAMPLES,
                     tuple(f"pattern{number}" for number in range(CLASSES)), ("images are drawn, not read: accuracies mean nothing",))


def open_train(config: DataConfig, facts: DataFacts, share: Share, augment: SampleAugment | None) -> TrainLoader:
    """Open the drawn training images; there is nothing to augment in them."""
    return TrainLoader(config, facts, share)


def open_eval(config: DataConfig, facts: DataFacts, share: Share) -> EvalLoader:
    """Open the drawn evaluation images."""
    return EvalLoader(config, facts, share)
