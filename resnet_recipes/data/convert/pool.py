"""Encode many images in several processes, in order."""

import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

import numpy as np

from resnet_recipes.base.cores import cores
from resnet_recipes.base.errors import TrainingError
from resnet_recipes.base.processes import process_pool
from resnet_recipes.data.beton.writer import RECORD
from resnet_recipes.data.convert.encode import ConvertOptions, Encoded, encode
from resnet_recipes.data.convert.source import Source

_CHUNK = 128  # images between two visits to the disk


class EncodedChunk(NamedTuple):
    """Consecutive samples, ready for BetonWriter.append."""

    samples: list[tuple[np.void, bytes]]  # an unreadable image has no bytes
    unreadable: list[tuple[str, str]]  # name and reason


def worker_count(options: ConvertOptions) -> int:
    """Return the number of processes that encode."""
    return options.workers or cores()


def encode_one(source: Source, index: int, options: ConvertOptions) -> Encoded | str:
    """Encode one image, or return why it cannot be read."""
    try:
        return encode(source.read(index), index, options)
    except (OSError, ValueError, MemoryError) as error:
        return str(error) or type(error).__name__


def encode_in_order(
    source: Source, order: np.ndarray, options: ConvertOptions
) -> Iterator[EncodedChunk]:
    """Yield the images in chunks, in the given order.

    The processes work at most a few chunks ahead.
    """
    chunks = [order[at : at + _CHUNK] for at in range(0, len(order), _CHUNK)]
    workers = min(worker_count(options), len(chunks))
    if workers <= 1:
        yield from (_encode_chunk(source, chunk, options) for chunk in chunks)
        return
    with process_pool(workers, [__name__], _keep, source, options) as pool:
        ahead: deque[Future] = deque()
        try:
            for chunk in chunks:
                ahead.append(pool.submit(_encode_kept, chunk))
                if len(ahead) > 2 * workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        except BrokenProcessPool as error:
            rule = (
                "a conversion worker was killed (out of memory?); the same command with fewer "
                "workers resumes"
            )
            raise TrainingError(rule) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _keep(source: Source, options: ConvertOptions) -> None:
    """Store in a worker what all its chunks share, so that file names are sent only once."""
    global _kept
    _kept = source, options


def _encode_kept(chunk: np.ndarray) -> EncodedChunk:
    source, options = _kept
    return _encode_chunk(source, chunk, options)


def _encode_chunk(source: Source, chunk: np.ndarray, options: ConvertOptions) -> EncodedChunk:
    samples, unreadable = [], []
    for index in chunk.tolist():
        found = encode_one(source, index, options)
        if isinstance(found, str):
            unreadable.append((source.name(index), found))
            found = Encoded(0, 0, 0, b"")
        row = (
            found.mode,
            found.width,
            found.height,
            0,
            0,
            zlib.crc32(found.data),
            source.labels[index],
        )
        samples.append((np.array(row, RECORD)[()], found.data))
    return EncodedChunk(samples, unreadable)
