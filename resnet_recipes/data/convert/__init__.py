"""Convert images or a .beton file to .beton files: resumable and verified."""

import random
import shlex
import shutil
import time
import zlib
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from resnet_recipes.base.errors import Command, Hint, NotReadyError, Problem, TrainingError
from resnet_recipes.base.paths import find_existing_parent
from resnet_recipes.base.processes import ProcessPool
from resnet_recipes.base.text import Progress, format_bytes
from resnet_recipes.data.beton.samples import open_samples
from resnet_recipes.data.beton.writer import BetonWriter, get_partial_path
from resnet_recipes.data.convert.encode import ConvertOptions, EncodedImage
from resnet_recipes.data.convert.shards import Shards
from resnet_recipes.data.convert.splits import Split, count_finished, plan_files
from resnet_recipes.data.images.decode import BadImageError
from resnet_recipes.data.root import SPLITS

PAGE_SIZE = 8 << 20  # bytes, the FFCV default
# bytes, if images keep their size: an image must fit into a page
LARGE_PAGE_SIZE = 128 << 20
MEASURED_IMAGES = 500  # images to measure

_PAGE_LOSS_FACTOR = 1.02  # factor for unused space at the end of pages
_METADATA_BYTES = 48  # bytes per image

_CHUNK_IMAGES = 128  # images between two writes to disk


class Forecast(NamedTuple):
    """The cost of a conversion, measured on a sample."""

    images: int
    bytes: int  # bytes of all files together
    minutes: float  # minutes on this machine at its current load
    free_bytes: int  # free bytes on the target disk
    resumed_images: int  # images finished by an interrupted attempt
    sampled_images: int  # images that were measured
    unreadable: tuple[str, ...]  # images of the sample that cannot be read, with reasons
    ignored_files: tuple[str, ...]  # files of the source that are not converted

    def describe_unreadable(self) -> str:
        """Return how many images of the sample are unreadable, and an example."""
        return (
            f"has unreadable images: {len(self.unreadable):,} of {self.sampled_images:,} that were "
            f"read, such as {self.unreadable[0]}"
        )


def forecast(src: Path, dst: Path, options: ConvertOptions) -> Forecast:
    """Return a forecast from up to 500 encoded images of SRC; takes seconds, writes nothing."""
    files = plan_files(src, dst, options)
    ends = np.cumsum([len(levels[0]) for levels in files])
    total = int(ends[-1])
    chosen = random.Random(options.seed).sample(range(total), min(MEASURED_IMAGES, total))
    size = 0
    unreadable = []
    start = time.perf_counter()
    for position in chosen:
        number = int(np.searchsorted(ends, position, "right"))
        split, *half = files[number]
        index = position - int(ends[number]) + len(split)
        encoded = split.source.encode(index, options, bool(half))
        if isinstance(encoded, str):
            unreadable.append(f"{split.source.images.path(index)}, which {encoded}")
        else:
            size += sum(len(level.data) for level in encoded)
    seconds = (time.perf_counter() - start) / len(chosen)
    finished = count_finished(files)
    resumed = sum(len(levels[0]) for levels in files[:finished]) + sum(
        min(len(split.read_journal()) for split in levels) for levels in files[finished:]
    )
    splits = [*chain(*files)]
    return Forecast(
        images=total,
        bytes=int(size / len(chosen) * total * _PAGE_LOSS_FACTOR)
        + sum(map(len, splits)) * _METADATA_BYTES
        + len(splits) * _choose_page_size(options),  # samples start on the second page
        minutes=(total - resumed) * seconds / options.processes / 60,
        free_bytes=shutil.disk_usage(find_existing_parent(dst)).free,
        resumed_images=resumed,
        sampled_images=len(chosen),
        unreadable=tuple(unreadable),
        ignored_files=tuple(chain(*(levels[0].source.ignored_files for levels in files))),
    )


#: Consecutive encoded images: samples of each level for BetonWriter.append, with no bytes for
#: unreadable images; and the names of unreadable images with reasons.
_Chunk = tuple[list[list[tuple[tuple, bytes]]], list[tuple[str, str]]]


def convert(
    src: Path,
    dst: Path,
    options: ConvertOptions,
    progress: Progress,
    expected: Forecast | None = None,
) -> list[Path]:
    """Write the files and return their paths; resume an interrupted attempt at the same conversion.

    `expected` is the forecast, if already made. Raises RecipeError if DST or an option is wrong,
    and NotReadyError if an image is unreadable or the disk is full. Raises TrainingError if a
    worker dies or a file reads back differently.
    """
    files = plan_files(src, dst, options)
    NotReadyError.raise_if_any(chain(*map(_find_skip_problems, chain(*files))))
    expected = expected or forecast(src, dst, options)
    if expected.unreadable and options.on_bad_image == "error":
        fix = _suggest_fixes(files[0][0])
        raise NotReadyError.at(src, expected.describe_unreadable(), fix)
    finished = count_finished(files)
    targets = [split.target for split in chain(*files)]
    complete = [split.target for split in chain(*files[:finished])]
    written = [*complete, *map(get_partial_path, targets[len(complete) :])]
    missing = expected.bytes - sum(path.stat().st_size for path in written if path.exists())
    if missing > expected.free_bytes:
        free = format_bytes(expected.free_bytes)
        clause = f"has {free} free; about {format_bytes(missing)} are needed"
        fix = ("write_mode=jpg", "max_resolution=400")
        raise NotReadyError.at(dst, clause, fix)
    for levels in files[finished:]:
        levels[0].target.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            _convert_levels(levels, opened, progress)
    return targets


def _find_skip_problems(split: Split) -> Iterator[Problem]:
    """Yield a problem for each image that an earlier attempt skipped, if none may be skipped."""
    done = split.read_journal()
    if split.options.on_bad_image == "error":
        clause = (
            "was unreadable and was skipped by the earlier attempt (on_bad_image=skip) that "
            "this one would resume"
        )
        partial = shlex.quote(str(get_partial_path(split.target)))
        fix = ("on_bad_image=skip", Hint(f"to start over: rm {partial}"))
        for index in split.order()[: len(done)][done["size"] == 0]:
            yield Problem(split.source.images.path(index), None, clause, fix)


def _convert_levels(levels: list[Split], opened: ExitStack, progress: Progress) -> None:
    """Write a file and its small level in permuted order, chunk by chunk; read them back."""
    first = levels[0]
    total = len(first)
    order = first.order()
    writers = [opened.enter_context(closing(_open_writer(split))) for split in levels]
    done = min(len(writer.records) for writer in writers)
    try:
        for samples, unreadable in opened.enter_context(closing(_encode(levels, order[done:]))):
            if first.options.on_bad_image == "error":
                fix = _suggest_fixes(first)
                NotReadyError.raise_if_any(
                    Problem(name, None, why, fix) for name, why in unreadable
                )
            for writer, level in zip(writers, samples, strict=True):
                writer.append(level[len(writer.records) - done :])
            done += len(samples[0])
            progress(done, total)
        for split, writer in zip(levels, writers, strict=True):
            _finish(split, writer, order)
        for writer in writers:
            writer.publish()
    except OSError as error:
        clause = (
            f"cannot be written: {error.strerror} ({done:,} of {total:,} images are done and kept)"
        )
        hint = Hint("free some space, then run the same command again to resume")
        raise NotReadyError.at(first.target, clause, hint) from error


def _suggest_fixes(split: Split) -> tuple[str, str]:
    """Return how to continue after an unreadable image; `doctor data` does not read shards."""
    check = Command.of("resnet-recipes", "doctor", "data", split.source.path)
    return "on_bad_image=skip", "" if isinstance(split.source.images, Shards) else check


def _open_writer(split: Split) -> BetonWriter:
    page_size = _choose_page_size(split.options)
    return BetonWriter(split.target, len(split), page_size, split.compute_key())


def _choose_page_size(options: ConvertOptions) -> int:
    longest = options.max_resolution
    return PAGE_SIZE if longest and 3 * longest**2 <= PAGE_SIZE else LARGE_PAGE_SIZE


def _finish(split: Split, writer: BetonWriter, order: np.ndarray) -> None:
    """Write the description of a file whose samples are written, and read it back."""
    unreadable = order[writer.records["size"] == 0]
    if len(unreadable) == len(split):
        raise NotReadyError.at(split.source.path, "has no readable image")
    writer.finish(
        {
            "classes": split.source.classes,
            "source": split.source.path,
            "skipped": tuple(map(split.source.images.path, unreadable)),
            "split": split.name if split.name in SPLITS else "",
            "source_sha256": split.fingerprint,
            "options": asdict(split.options),
        }
    )
    if complaint := _verify(get_partial_path(split.target)):
        writer.discard()
        fix = Hint("check the disk and convert again")
        raise TrainingError(f"{split.target}: {complaint}", fix)


def _encode(levels: list[Split], order: np.ndarray) -> Generator[_Chunk, None, None]:
    """Yield the encoded images in chunks, in the given order."""
    chunks = [order[at : at + _CHUNK_IMAGES] for at in range(0, len(order), _CHUNK_IMAGES)]
    workers = min(levels[0].options.processes, len(chunks))
    if workers <= 1:
        yield from (_encode_chunk(levels, chunk) for chunk in chunks)
        return
    with ProcessPool(workers, [__name__], levels) as pool:
        ahead: deque[Future] = deque()
        try:
            for chunk in chunks:
                ahead.append(pool.submit(_encode_chunk, chunk))
                if len(ahead) > 2 * workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        except BrokenProcessPool as error:
            statement = "a conversion worker was killed (out of memory?)"
            fix = Hint("the same command with fewer workers resumes")
            raise TrainingError(statement, fix) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _encode_chunk(levels: list[Split], chunk: np.ndarray) -> _Chunk:
    source = levels[0].source
    unreadable = []
    samples: list[list[tuple[tuple, bytes]]] = [[] for _ in levels]
    for index in chunk.tolist():
        encoded = source.encode(index, levels[0].options, len(levels) > 1)
        if isinstance(encoded, str):
            unreadable.append((source.images.path(index), encoded))
            encoded = [EncodedImage(0, 0, 0, b"")] * len(levels)
        for level, (mode, height, width, data) in zip(samples, encoded, strict=True):
            record = (mode, width, height, 0, 0, zlib.crc32(data), source.images.labels[index])
            level.append((record, data))
    return samples, unreadable


def _verify(path: Path) -> str | None:
    """Return a complaint if one of up to 500 images does not have its size when read, else None."""
    samples = open_samples(path)
    for index in random.Random(0).sample(range(len(samples)), min(MEASURED_IMAGES, len(samples))):
        try:
            height, width, _ = samples.read(index).pixels().shape
        except BadImageError:
            height = width = 0
        if [height, width] != samples.beton.sizes[index].tolist():
            return f"sample {index} was not read back as it was written"
    return None
