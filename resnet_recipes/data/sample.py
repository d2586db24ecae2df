"""Read a sample of a run's images to estimate memory and time for all images."""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import NamedTuple, Self

import numpy as np

from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.base.reading import open_regular
from resnet_recipes.data.base import SAMPLED, Augment, DataConfig, DataFacts, Share
from resnet_recipes.data.beton.samples import Samples, open_samples
from resnet_recipes.data.files import Files
from resnet_recipes.data.files.listing import choose_strata
from resnet_recipes.data.images import build_train_pipeline
from resnet_recipes.data.images.decode import BadImageError, ChangedError, Pixels
from resnet_recipes.data.images.shrink import compute_shrunk_size
from resnet_recipes.data.native import explain_unavailable
from resnet_recipes.data.order import BatchOrder

#: CPU milliseconds per crop of an ImageNet photograph at 88 to 176 px, on an AMD EPYC 9004 core:
#: from its JPEG, from its pixels in memory, and the first crop, which stores them there.
TABLE = {"engine": (0.72, 0.1, 1.8), "Python": (1.9, 0.5, 7.0)}

#: CPU milliseconds per image of RandAugment or TrivialAugment at 176 px.
AUGMENT = 0.18

#: Time limit for reading images, in seconds.
PATIENCE = 0.3

#: Images that are cropped together.
_AT_ONCE = 16


class Sample(NamedTuple):
    """Some readable training images."""

    source: Files | Samples
    indices: np.ndarray  # int64 [n]
    shapes: np.ndarray  # int64 [n, 2], height and width
    images: int  # training and validation images of the run
    # disk seconds per image if many are requested; 0.0: the images are in memory
    disk: float
    times: "dict[str, CropSeconds | None]"  # times of crops, by their settings

    @classmethod
    @lru_cache(1)
    def of(cls, facts: DataFacts) -> Self | None:
        """Read some images; None if no image can be read, for example in a plan without data."""
        try:
            is_beton = facts.backend == "ffcv"
            path = facts.root / "train.beton"
            source = open_samples(path) if is_beton else Files.named(facts.sample)
        except NotReadyError:
            return None
        some: Sequence[int] = range(len(source))
        parts: list[tuple[Path | str, int, int]] = [(path, 0, 0) for path in facts.sample]
        if isinstance(source, Samples):
            beton = source.beton
            some = choose_strata(beton.lengths, SAMPLED).tolist()
            parts = [(path, int(beton.starts[i]), int(beton.lengths[i])) for i in some]
        shapes, disk = {}, _time_disk(parts)
        end = time.monotonic() + PATIENCE
        for index in some:
            with suppress(BadImageError, ChangedError, OSError):
                picture: Pixels = source.read(index)
                shapes[index] = picture.height, picture.width
            if time.monotonic() > end:
                break
        if not shapes:
            return None
        indices, sizes = np.array([*shapes]), np.array([*shapes.values()])
        return cls(source, indices, sizes, facts.train_examples + facts.eval_examples, disk, {})

    def bytes_at(self, longest: int) -> int:
        """Estimate the bytes of all images with a longer side of `longest`."""
        sizes = [
            compute_shrunk_size(int(height), int(width), longest) for height, width in self.shapes
        ]
        return int(self.images * mean(3 * height * width for height, width in sizes))

    def crop_seconds(
        self, config: DataConfig, augment: Augment | None, side: int
    ) -> "CropSeconds | None":
        """Return the CPU time of a training crop; None if an image is damaged.

        Crops with equal settings, as in the runs of a sweep, are timed once.
        """
        config = replace(config, workers=0, train_size=side, sampling="natural")
        if (key := f"{config} {augment}") not in self.times:
            self.times[key] = self._time_crops(config, augment)
        return self.times[key]

    def _time_crops(self, config: DataConfig, augment: Augment | None) -> "CropSeconds | None":
        name, share = f"resnet-recipes sample {os.getpid()}", Share(0, 1, _AT_ONCE, 1, seed=0)
        laps, read, end = np.zeros(3), 0, time.monotonic() + PATIENCE
        with closing(build_train_pipeline(self.source, config, share, augment, name)) as pipeline:
            while read < len(self.indices) and (not read or time.monotonic() < end):
                some = self.indices[read : read + _AT_ONCE]
                for epoch in range(len(laps)):
                    began = time.process_time()
                    try:
                        next(pipeline.run([BatchOrder(epoch, some, 0 * some, config.train_size)]))
                    except TrainingError:
                        return None
                    laps[epoch] += time.process_time() - began
                read += len(some)
        first, *others = (laps / read).tolist()
        later = min(others)
        return CropSeconds(first if config.memory_pixels else later, later)

    @property
    def source_text(self) -> str:
        """A description of the source of the times."""
        return f"measured on {len(self.indices)} of these images"


class Typical:
    """Typical ImageNet photographs, from a table."""

    images, disk = 1_281_167 + 50_000, 0.0

    def bytes_at(self, longest: int) -> int:
        """Estimate the bytes of all images with a longer side of `longest`."""
        return int(2.2 * longest**2) * self.images

    def crop_seconds(self, config: DataConfig, augment: Augment | None, side: int) -> "CropSeconds":
        """Return the CPU time of a training crop."""
        more = AUGMENT if augment else 0.0
        files, later, first = (
            (milliseconds + more) / 1000
            for milliseconds in TABLE["Python" if explain_unavailable() else "engine"]
        )
        return CropSeconds(first, later) if config.memory_pixels else CropSeconds(files, files)

    source_text = "by a table for photographs and a core of an AMD EPYC 9004"


class CropSeconds(NamedTuple):
    """CPU seconds of a training crop."""

    first: float  # in the first epoch
    later: float


def _time_disk(parts: Iterable[tuple[str | Path, int, int]]) -> float:
    """Return the seconds that the disk needs for a part of a file; 0.0 for parts in memory.

    A part has a path, its first byte and its length (0: the complete file). The page cache does not
    change.
    """
    with ExitStack() as stack:
        ranges = list[tuple[int, int, int]]()
        try:
            for path, first, length in parts:
                with suppress(OSError):
                    file = stack.enter_context(open_regular(path)).fileno()
                    ranges.append((file, first, length or os.fstat(file).st_size))
            cold = [part for part in ranges if not _is_cached(*part)]
            for part in cold:
                os.posix_fadvise(*part, os.POSIX_FADV_WILLNEED)
            start, seconds = time.monotonic(), 0.0
            for count, (file, first, length) in enumerate(cold, 1):
                os.pread(file, length, first)
                elapsed = time.monotonic() - start
                seconds = elapsed / count * len(cold) / len(ranges)
                if elapsed > PATIENCE:
                    break
            for part in cold:
                os.posix_fadvise(*part, os.POSIX_FADV_DONTNEED)
        except OSError:  # a file system that does not support it
            return 0.0
    return seconds


def _is_cached(file: int, first: int, length: int) -> bool:
    """Return whether the middle of a part of a file is in the page cache."""
    try:
        os.preadv(file, [bytearray(1)], first + length // 2, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True
