"""Loaders for a folder of class folders, with the crops and sizes of torchvision's reference pipeline."""

import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from resnet_recipes.data import order
from resnet_recipes.data.base import DataConfig, DataFacts, RawBatch, SampleAugment, Share
from resnet_recipes.data.cores import workers
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.files.folder import Files
from resnet_recipes.data.files.reader import EvalReader, TrainReader
from resnet_recipes.data.files.survey import survey
from resnet_recipes.data.workers.ring import Ring
from resnet_recipes.data.workers.worker import Source


class TrainLoader:
    """Endless training batches out of image files; see data.base.TrainLoader. Every step can be the first, at no cost."""

    def __init__(self, config: DataConfig, facts: DataFacts, share: Share, augment: SampleAugment | None):
        self.examples = facts.train_examples
        self.steps_per_epoch = order.steps_per_epoch(share, self.examples)
        self._config, self._share = config, share
        self._files = Files(facts.root / "train", facts.classes)
        reader = TrainReader(self._files, TrainCrop.of(config, share), augment, config.reduced_decode)
        source = Source(reader, self.examples, skip_bad=config.on_bad_image == "skip")
        pixels = max(share.train_pixels, default=config.train_size)
        self._ring = Ring(source, share.rank_size, pixels, workers(config, share.world_size), config.prefetch)
        if torch.cuda.is_initialized():
            self._ring.pin()

    def batches(self, first_step: int = 0) -> Iterator[RawBatch]:
        """Yield the batches from `first_step` on, without end."""
        return self._ring.run(order.train_jobs(self._config, self._share, self.examples, first_step))

    @property
    def skipped(self) -> tuple[str, ...]:
        """Images that could not be read and were replaced by their neighbours (`data.on_bad_image=skip`)."""
        return tuple(map(self._files.path, sorted(self._ring.skipped)))

    def close(self) -> None:
        """Stop all workers."""
        self._ring.close()


class EvalLoader:
    """Evaluation batches out of image files; see data.base.EvalLoader.

    An image that cannot be read is always an error: an accuracy over other images cannot be compared. The memory is not pinned,
    since nothing here waits for a copy to a GPU before the next batch is written.
    """

    def __init__(self, config: DataConfig, facts: DataFacts, share: Share):
        self.examples = facts.eval_examples
        self._config, self._share = config, share
        self._ring = Ring(Source(EvalReader(Files(facts.root / "val", facts.classes), config.eval_resize), self.examples),
                          share.eval_size, config.eval_size, workers(config, share.world_size), config.prefetch)

    def batches(self) -> Iterator[RawBatch]:
        """Yield this rank's evaluation batches, the last one as short as it is."""
        return self._ring.run(order.eval_jobs(self._config, self._share, self.examples))

    def close(self) -> None:
        """Stop all workers."""
        self._ring.close()


def measure(config: DataConfig) -> DataFacts:
    """Count the images and classes; raises NotReadyError with what must be put right."""
    return survey(config, "torchvision")


def open_train(config: DataConfig, facts: DataFacts, share: Share, augment: SampleAugment | None) -> TrainLoader:
    """Open the training images."""
    return TrainLoader(config, facts, share, augment)


def open_eval(config: DataConfig, facts: DataFacts, share: Share) -> EvalLoader:
    """Open the evaluation images."""
    return EvalLoader(config, facts, share)


def seconds_per_image(config: DataConfig, facts: DataFacts) -> float:
    """Decode 64 training images in this process, and return the CPU seconds of one."""
    share = Share(0, 1, min(64, facts.train_examples), 1, 0)
    loader = TrainLoader(replace(config, workers=0, on_bad_image="skip"), facts, share, None)
    began = time.process_time()
    next(loader.batches())
    return (time.process_time() - began) / share.rank_size
