"""Loaders for small sets: the whole set is decoded once and lives on the device, where crops and flips are batched."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.data import order
from resnet_recipes.data.base import DataConfig, DataFacts, RawBatch, SampleAugment, Share
from resnet_recipes.data.cores import workers
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.files.folder import Files
from resnet_recipes.data.files.reader import EvalReader
from resnet_recipes.data.files.survey import survey
from resnet_recipes.data.workers.ring import Ring
from resnet_recipes.data.workers.worker import Source
from resnet_recipes.errors import NotReadyError, Problem

#: Side of the stored training images over the side of the crops: what a random crop has to choose from.
MARGIN = 1.25

#: Bytes that a set may take.
ROOM = 16 * 2**30


class TrainLoader:
    """Endless training batches out of a set on the device; see data.base.TrainLoader.

    Differs from the other backends: images are first cut to a centred square of MARGIN times the crop's side, and crops are then resized
    bilinearly without antialiasing. Good for small images and smoke runs; not for published recipes.
    """

    skipped = ()

    def __init__(self, config: DataConfig, facts: DataFacts, share: Share):
        self.examples = facts.train_examples
        self.steps_per_epoch = order.steps_per_epoch(share, self.examples)
        self._config, self._share = config, share
        self._crop = TrainCrop.of(config, share)
        side = round(MARGIN * max(share.train_pixels, default=config.train_size))
        self._set = _decoded(replace(config, eval_resize=side, eval_size=side), facts, share, "train")

    def batches(self, first_step: int = 0) -> Iterator[RawBatch]:
        """Yield the batches from `first_step` on, without end."""
        for job in order.train_jobs(self._config, self._share, self.examples, first_step):
            chosen = torch.from_numpy(job.indices).to(self._set.labels.device, non_blocking=True)
            sizes = np.full((len(job.indices), 2), self._set.pixels.shape[1])
            pixels = _crops(self._set.pixels[chosen], *self._crop.cuts(job.epoch, job.indices, sizes), job.pixels)
            yield RawBatch(pixels, self._set.labels[chosen])

    def close(self) -> None:
        """Do nothing: the workers stopped after decoding."""


class EvalLoader:
    """Evaluation batches out of a set on the device, with exactly the pixels of the torchvision backend; see data.base.EvalLoader."""

    def __init__(self, config: DataConfig, facts: DataFacts, share: Share):
        self.examples = facts.eval_examples
        self._config, self._share = config, share
        self._set = _decoded(config, facts, share, "val")

    def batches(self) -> Iterator[RawBatch]:
        """Yield this rank's evaluation batches, the last one as short as it is."""
        for job in order.eval_jobs(self._config, self._share, self.examples):
            chosen = torch.from_numpy(job.indices).to(self._set.labels.device, non_blocking=True)
            yield RawBatch(self._set.pixels[chosen].permute(0, 3, 1, 2), self._set.labels[chosen])

    def close(self) -> None:
        """Do nothing: the workers stopped after decoding."""


def measure(config: DataConfig) -> DataFacts:
    """Count the images and classes, and see that they fit."""
    facts = survey(config, "gpu")
    size = facts.train_examples * 3 * round(MARGIN * config.train_size) ** 2 + facts.eval_examples * 3 * config.eval_size**2
    if size > ROOM:
        raise NotReadyError([Problem("data.backend", "gpu", f"would keep {size / 2**30:.0f} GiB on the device; it is for sets of up to "
                                     f"{ROOM / 2**30:.0f} GiB", "data.backend=auto")])
    return replace(facts, notes=(f"all images are decoded once and stay on the device: {size / 2**30:.1f} GiB", *facts.notes))


def open_train(config: DataConfig, facts: DataFacts, share: Share, augment: SampleAugment | None) -> TrainLoader:
    """Open the training images; there is no moment at which one could be augmented alone."""
    return TrainLoader(config, facts, share)


def open_eval(config: DataConfig, facts: DataFacts, share: Share) -> EvalLoader:
    """Open the evaluation images."""
    return EvalLoader(config, facts, share)


def _decoded(config: DataConfig, facts: DataFacts, share: Share, split: str) -> RawBatch:
    """Return a whole split on the device: pixels uint8 [N, S, S, 3], centre crops of `config.eval_size`, and labels."""
    files = Files(facts.root / split, facts.classes)
    source = Source(EvalReader(files, config.eval_resize), len(files))
    alone = replace(share, rank=0, world_size=1, eval_size=256)
    ring = Ring(source, alone.eval_size, config.eval_size, workers(config, share.world_size), config.prefetch)
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_initialized() else torch.device("cpu")
    pixels = torch.empty(len(files), config.eval_size, config.eval_size, 3, dtype=torch.uint8, device=device)
    try:
        for start, batch in zip(range(0, len(files), 256), ring.run(order.eval_jobs(config, alone, len(files))), strict=True):
            pixels[start:start + 256] = batch.pixels.permute(0, 2, 3, 1)
    finally:
        ring.close()
    return RawBatch(pixels, torch.from_numpy(files.labels.copy()).to(device))


def _crops(images: Tensor, boxes: np.ndarray, mirrored: np.ndarray, side: int) -> Tensor:
    """Cut a box (top, left, height, width) out of each of [N, S, S, 3] images and resize it to `side`: uint8 [N, 3, side, side]."""
    top, left, height, width = torch.from_numpy(boxes.T.astype(np.float32)).to(images.device, non_blocking=True)
    sign = torch.from_numpy(np.where(mirrored, -1, 1).astype(np.float32)).to(images.device, non_blocking=True)
    zero, whole = torch.zeros_like(top), images.shape[1]
    across = torch.stack([sign * width / whole, zero, (2 * left + width) / whole - 1], 1)
    down = torch.stack([zero, height / whole, (2 * top + height) / whole - 1], 1)
    grid = F.affine_grid(torch.stack([across, down], 1), [len(images), 3, side, side], align_corners=False)
    crops = F.grid_sample(images.permute(0, 3, 1, 2).float(), grid, padding_mode="border", align_corners=False)
    return crops.round_().to(torch.uint8, memory_format=torch.channels_last)
