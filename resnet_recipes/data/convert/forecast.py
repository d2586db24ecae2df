"""What a conversion will cost, measured on a sample of its images."""

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.paths import nearest_existing
from resnet_recipes.data.convert.encode import ConvertOptions, Encoded
from resnet_recipes.data.convert.pool import encode_one, worker_count
from resnet_recipes.data.convert.source import Halved
from resnet_recipes.data.convert.speed import images_per_second
from resnet_recipes.data.convert.splits import Split, divided, splits_of

PAGE_SIZE = 8 << 20  # bytes, FFCV's own default
SAMPLED = 500  # images

_PAGE_LOSS = 1.02  # ends of pages that no image fits into
_METADATA = 48  # bytes of one image


class Forecast(NamedTuple):
    """The cost of a conversion, measured on a sample."""

    images: int
    bytes: int  # of all files together
    minutes: float  # on this machine, as busy as it is now
    free_bytes: int  # on the disk of the target
    resumed_images: int  # done by an interrupted attempt
    sampled: int  # images that were measured
    unreadable: tuple[str, ...]  # images of the sample that cannot be read, with reasons
    # random crops per second and core with the native decoder, by side in pixels
    speeds: dict[int, float]
    left_out: tuple[str, ...]  # files of the source that are not converted


class _Sample(NamedTuple):
    """Some images of a conversion, encoded."""

    count: int
    seconds: float  # of one image
    bytes: float  # of one image; unreadable ones have none
    encoded: dict[str, list[Encoded]]  # by split
    unreadable: list[str]


def forecast(src: Path, dst: Path, options: ConvertOptions) -> Forecast:
    """Encode up to 500 images of SRC to forecast size and time; takes seconds, writes nothing."""
    splits = splits_of(src, dst, options)
    sample = _sampled(splits, options)
    total = sum(map(len, splits))
    made, to_make = divided(splits, options)
    resumed = sum(map(len, made)) + sum(len(split.journal(options)) for split in to_make)
    return Forecast(
        images=sum(len(split) for split in splits if not isinstance(split.source, Halved)),
        bytes=int(sample.bytes * total * _PAGE_LOSS) + total * _METADATA + len(splits) * PAGE_SIZE,
        minutes=(total - resumed) * sample.seconds / worker_count(options) / 60,
        free_bytes=shutil.disk_usage(nearest_existing(Path(dst))).free,
        resumed_images=resumed,
        sampled=sample.count,
        unreadable=tuple(sample.unreadable),
        speeds=_speeds([sample.encoded.get(split.name, []) for split in splits[: options.levels]]),
        left_out=tuple(name for split in splits for name in split.source.left_out),
    )


def _sampled(splits: Sequence[Split], options: ConvertOptions) -> _Sample:
    """Encode images drawn from all files alike."""
    images = sum(map(len, splits))
    chosen = random.Random(options.seed).sample(range(images), min(SAMPLED, images))
    encoded: dict[str, list[Encoded]] = {}
    unreadable, size, started = [], 0, time.perf_counter()
    for place in chosen:
        split, index = _located(splits, place)
        found = encode_one(split.source, index, options)
        if isinstance(found, Encoded):
            size += len(found.data)
            encoded.setdefault(split.name, []).append(found)
        else:
            unreadable.append(f"{split.source.name(index)}: {found}")
    seconds = (time.perf_counter() - started) / len(chosen)
    return _Sample(len(chosen), seconds, size / len(chosen), encoded, unreadable)


def _speeds(levels: Sequence[Sequence[Encoded]]) -> dict[int, float]:
    """Return how fast crops of 176 px are cut from the first level, and of 88 px from the last."""
    speeds = {176: images_per_second(levels[0], 176), 88: images_per_second(levels[-1], 88)}
    return {side: speed for side, speed in speeds.items() if speed}


def _located(splits: Sequence[Split], place: int) -> tuple[Split, int]:
    """Return the split of image number `place` among all, and its index in that split."""
    for split in splits[:-1]:
        if place < len(split):
            return split, place
        place -= len(split)
    return splits[-1], place
