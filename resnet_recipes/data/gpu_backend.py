"""Loaders for small datasets: decode everything once, keep it on the device, and crop and flip whole batches there."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.base.errors import NotReadyError, Problem
from resnet_recipes.data import order
from resnet_recipes.data.base import DataConfig, DataFacts, RawBatch, SampleAugment, Share
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.files.images import Files
from resnet_recipes.data.files.listing import Tell
from resnet_recipes.data.files.survey import survey
from resnet_recipes.data.images.native import eval_images
from resnet_recipes.data.loading.loader import Supply
from resnet_recipes.data.loading.pipeline import Pipeline
from resnet_recipes.data.loading.slots import Capacity
from resnet_recipes.data.order import Job

#: Side of the stored training images relative to the side of the crops, to leave random crops room
#: to move.
MARGIN = 1.25

#: Most bytes that a dataset may take.
ROOM = 16 * 2**30

_BLOCK = 256  # images decoded together


class Resident(Supply):
    """A split held on the device: uint8 pixels [N, S, S, 3], centre crops of side `config.eval_size`, and labels.

    Evaluation pixels equal those of the torchvision backend. Training, with a `crop`, differs from
    the other backends: images are first cropped to a centred square of MARGIN times the crop's
    side, and crops are then resized bilinearly without antialiasing. Good for small images and
    smoke runs; not for published recipes.
    """

    def __init__(
        self, files: Files, config: DataConfig, share: Share, crop: TrainCrop | None = None
    ):
        self.examples, self._crop = len(files), crop
        decoded = _decoded(files, config, share)
        self._pixels, self._labels = decoded.pixels, decoded.labels

    def run(self, jobs: Iterable[Job]) -> Iterator[RawBatch]:
        """Yield one batch for each job."""
        for job in jobs:
            chosen = torch.from_numpy(job.indices).to(self._labels.device, non_blocking=True)
            pixels = self._pixels[chosen]
            if self._crop:
                sizes = np.full((len(job.indices), 2), pixels.shape[1])
                pixels = _crops(
                    pixels,
                    *self._crop.cuts(job.epoch, job.indices, job.copies, sizes)[:2],
                    job.pixels,
                )
            yield RawBatch(
                pixels if self._crop else pixels.permute(0, 3, 1, 2), self._labels[chosen]
            )


def measure(config: DataConfig, tell: Tell) -> DataFacts:
    """Count the images and classes, and check that they fit in memory."""
    facts = survey(config, "gpu", tell)
    train_side = round(MARGIN * config.train_size)
    size = 3 * (facts.train_examples * train_side**2 + facts.eval_examples * config.eval_size**2)
    if size > ROOM:
        raise NotReadyError(
            [
                Problem(
                    "data.backend",
                    "gpu",
                    f"would keep {size / 2**30:.0f} GiB on the device; the limit is "
                    f"{ROOM / 2**30:.0f} GiB",
                    "data.backend=auto",
                )
            ]
        )
    note = f"all images are decoded once and stay on the device: {size / 2**30:.1f} GiB"
    return replace(facts, notes=(*facts.notes, note))


def open_train(
    config: DataConfig, facts: DataFacts, share: Share, augment: SampleAugment | None
) -> Resident:
    """Open the training images; they are not decoded one by one, so `augment` cannot run."""
    side = round(MARGIN * max(share.train_pixels, default=config.train_size))
    larger = replace(config, eval_resize=side, eval_size=side)
    return Resident(
        Files.of(config, "train", facts.train_digest), larger, share, TrainCrop.of(config, share)
    )


def open_eval(config: DataConfig, facts: DataFacts, share: Share) -> Resident:
    """Open the evaluation images."""
    return Resident(Files.of(config, "val", facts.eval_digest), config, share)


def _decoded(files: Files, config: DataConfig, share: Share) -> RawBatch:
    """Return a whole split on the device."""
    device = (
        torch.device("cuda", torch.cuda.current_device())
        if torch.cuda.is_initialized()
        else torch.device("cpu")
    )
    pixels = torch.empty(
        len(files), config.eval_size, config.eval_size, 3, dtype=torch.uint8, device=device
    )
    capacity = Capacity.for_evaluation(config, replace(share, eval_size=_BLOCK))
    pipeline = Pipeline(eval_images(files, config.eval_resize, False, capacity.workers), capacity)
    jobs = order.eval_jobs(config, Share(0, 1, _BLOCK, _BLOCK, 0), len(files))
    try:
        for start, batch in zip(range(0, len(files), _BLOCK), pipeline.run(jobs), strict=True):
            pixels[start : start + _BLOCK] = batch.pixels.permute(0, 2, 3, 1)
    finally:
        pipeline.close()
    return RawBatch(pixels, torch.from_numpy(files.labels.copy()).to(device))


def _crops(images: Tensor, boxes: np.ndarray, mirrored: np.ndarray, side: int) -> Tensor:
    """Crop a box (top, left, height, width) from each image [N, S, S, 3] and resize it: uint8 [N, 3, side, side]."""
    top, left, height, width = torch.from_numpy(boxes.T.astype(np.float32)).to(
        images.device, non_blocking=True
    )
    sign = torch.from_numpy(np.where(mirrored, -1, 1).astype(np.float32)).to(
        images.device, non_blocking=True
    )
    zero, whole = torch.zeros_like(top), images.shape[1]
    across = torch.stack([sign * width / whole, zero, (2 * left + width) / whole - 1], 1)
    down = torch.stack([zero, height / whole, (2 * top + height) / whole - 1], 1)
    grid = F.affine_grid(
        torch.stack([across, down], 1), [len(images), 3, side, side], align_corners=False
    )
    crops = F.grid_sample(
        images.permute(0, 3, 1, 2).float(), grid, padding_mode="border", align_corners=False
    )
    return crops.round_().to(torch.uint8, memory_format=torch.channels_last)
