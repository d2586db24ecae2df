"""Read a sample of a run's images to estimate memory and time for all images."""

import os
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import NamedTuple, Self

import numpy as np

from resnet_recipes.augment import ImageAugment
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.reading import open_regular
from resnet_recipes.data.base import SAMPLE_SIZE, Batching, DataConfig, DataFacts
from resnet_recipes.data.beton.samples import Samples, open_samples
from resnet_recipes.data.files import Files
from resnet_recipes.data.files.listing import choose_strata
from resnet_recipes.data.images import build_train_pipeline
from resnet_recipes.data.images.decode import BadImageError, ChangedError
from resnet_recipes.data.images.python import Source
from resnet_recipes.data.images.shrink import compute_shrunk_size
from resnet_recipes.data.native import find_decoder_fault
from resnet_recipes.data.order import BatchOrder

#: CPU milliseconds per crop of an ImageNet photograph at 88 to 176 px, on an AMD EPYC 9004 core:
#: from its JPEG, from its pixels in memory, and the first crop, which stores them there.
CROP_MILLISECONDS = {"native": (0.72, 0.1, 1.8), "Python": (1.9, 0.5, 7.0)}

#: CPU milliseconds per image of RandAugment or TrivialAugment at 176 px.
AUGMENT_MILLISECONDS = 0.18

#: Height and width of a photograph with the mean aspect ratio of ImageNet.
PHOTOGRAPH_SIZE = (367, 500)

#: Time limit for cropping images, in seconds.
MAX_CROP_SECONDS = 0.3

#: Images that are cropped together.
_CROPS_AT_ONCE = 16

#: Limit of bytes per image that time the disk; few images are larger.
_MAX_READ_BYTES = 4 << 20


class CropSeconds(NamedTuple):
    """CPU seconds of a training crop."""

    first_epoch: float
    later_epochs: float


class FilePart(NamedTuple):
    """The byte range of an image in a file."""

    path: str | Path
    first: int = 0
    length: int = 0  # 0: the complete file


class Sample(NamedTuple):
    """Some readable training images, or a typical photograph if there are none."""

    source: Files | Samples | None  # None: a typical photograph
    indices: np.ndarray  # int64 [n]
    shapes: np.ndarray  # int64 [n, 2], height and width
    images: int  # training and validation images of the run
    # disk seconds per image if many are requested; 0.0: the images are in memory
    disk_seconds: float
    times: dict[str, CropSeconds]  # times of crops, by their settings

    @classmethod
    @lru_cache(1)
    def of(cls, facts: DataFacts) -> Self:
        """Return a sample of the training images, or a typical photograph if none can be read."""
        source: Files | Samples | None = None
        disk, shapes = 0.0, {}
        with suppress(NotReadyError):
            if facts.backend == "ffcv":
                source = open_samples(path := facts.root / "train.beton")
                starts, lengths = source.beton.starts, source.beton.lengths
                some = choose_strata(lengths, SAMPLE_SIZE).tolist()
                parts = {i: FilePart(path, int(starts[i]), int(lengths[i])) for i in some}
            else:
                source = Files.from_paths(facts.sample)
                parts = {i: FilePart(path) for i, path in enumerate(facts.sample)}
            disk = _time_disk(parts.values())
            for index in parts:
                with suppress(BadImageError, ChangedError, OSError):
                    picture = source.read(index)
                    shapes[index] = picture.height, picture.width
        images = facts.train_examples + facts.eval_examples
        if not shapes:
            source = None
            shapes = {0: PHOTOGRAPH_SIZE}
        return cls(source, np.array([*shapes]), np.array([*shapes.values()]), images, disk, {})

    def estimate_bytes(self, longest: int) -> int:
        """Estimate the bytes of all images with a longer side of `longest`."""
        sizes = [
            compute_shrunk_size(height, width, longest) for height, width in self.shapes.tolist()
        ]
        return int(self.images * mean(3 * height * width for height, width in sizes))

    def crop_seconds(
        self, config: DataConfig, augment: ImageAugment | None, image_size: int
    ) -> CropSeconds:
        """Return the CPU time of a training crop. Raises TrainingError if an image is damaged.

        Crops with equal settings, as in the runs of a sweep, are timed once.
        """
        if self.source is None:
            return _get_typical_crop_seconds(config, augment)
        config = replace(config, workers=0, train_size=image_size, sampling="natural")
        if (key := f"{config} {augment}") not in self.times:
            self.times[key] = self._time_crops(self.source, config, augment)
        return self.times[key]

    def _time_crops(
        self, source: Source, config: DataConfig, augment: ImageAugment | None
    ) -> CropSeconds:
        name = f"resnet-recipes sample {os.getpid()}"
        batching = Batching(0, 1, _CROPS_AT_ONCE, 1, seed=0)
        laps = np.zeros(3)
        read = 0
        end = time.monotonic() + MAX_CROP_SECONDS
        with closing(build_train_pipeline(source, config, batching, augment, name)) as pipeline:
            while read < len(self.indices) and (not read or time.monotonic() < end):
                some = self.indices[read : read + _CROPS_AT_ONCE]
                for epoch in range(len(laps)):
                    start = time.process_time()
                    next(pipeline.read([BatchOrder(epoch, some, 0 * some, config.train_size)]))
                    laps[epoch] += time.process_time() - start
                read += len(some)
        first, *others = (laps / read).tolist()
        return CropSeconds(first if config.memory_pixels else min(others), min(others))


def _get_typical_crop_seconds(config: DataConfig, augment: ImageAugment | None) -> CropSeconds:
    row = CROP_MILLISECONDS["Python" if find_decoder_fault() else "native"]
    more = AUGMENT_MILLISECONDS if augment else 0.0
    files, later, first = ((milliseconds + more) / 1000 for milliseconds in row)
    return CropSeconds(first, later) if config.memory_pixels else CropSeconds(files, files)


def _time_disk(parts: Collection[FilePart]) -> float:
    """Return the seconds that the disk needs for an image; 0.0 if it had to read none."""
    start = time.monotonic()
    with ThreadPoolExecutor(SAMPLE_SIZE) as pool:
        is_cold = any([*pool.map(_read_cold, parts)])
    return (time.monotonic() - start) / len(parts) if is_cold else 0.0


def _read_cold(part: FilePart) -> bool:
    """Read a part of a file unless its middle is in the page cache; return whether it was read."""
    with suppress(OSError), open_regular(part.path) as file:
        length = part.length or os.fstat(file.fileno()).st_size
        try:
            os.preadv(file.fileno(), [bytearray(1)], part.first + length // 2, os.RWF_NOWAIT)
        except BlockingIOError:
            os.pread(file.fileno(), min(length, _MAX_READ_BYTES), part.first)
            return True
    return False
