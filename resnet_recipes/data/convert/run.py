"""Convert images, or another .beton file, to .beton files: resumed if killed, then verified."""

import random
import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from resnet_recipes.base.errors import NotReadyError, Problem, TrainingError
from resnet_recipes.data.beton.file import open_beton
from resnet_recipes.data.beton.writer import BetonWriter, partial_path
from resnet_recipes.data.convert.encode import ConvertOptions, Encoded
from resnet_recipes.data.convert.forecast import PAGE_SIZE, SAMPLED, Forecast, forecast
from resnet_recipes.data.convert.pool import EncodedChunk, encode_in_order, encode_one
from resnet_recipes.data.convert.source import BetonSource
from resnet_recipes.data.convert.splits import Split, divided, splits_of
from resnet_recipes.data.root import SPLITS

# bytes, used when images keep their size: one image must fit into a page
LARGE_PAGE_SIZE = 128 << 20


#: Told how many images of a split are done, those of an earlier attempt included, and of how many.
Progress = Callable[[int, int], None]


def convert(
    src: Path,
    dst: Path,
    options: ConvertOptions,
    progress: Progress,
    expected: Forecast | None = None,
) -> list[Path]:
    """Write the files and return their paths.

    Resumes an interrupted attempt at the same conversion.

    `expected` is the forecast, if already made. Old files of the same name stay until the new ones
    are complete. Raises NotReadyError (disk full, unreadable images) or TrainingError (a worker
    died, a file reads back differently).
    """
    splits = splits_of(src, dst, options)
    if left_out := [problem for split in splits for problem in _left_out(split, options)]:
        raise NotReadyError(left_out)
    expected = expected or forecast(src, dst, options)
    made, to_make = divided(splits, options)
    written = [split.target for split in made] + [partial_path(split.target) for split in to_make]
    missing = expected.bytes - sum(path.stat().st_size for path in written if path.exists())
    if missing > expected.free_bytes:
        rule = (
            f"has {expected.free_bytes / 1e9:.1f} GB free, and about {missing / 1e9:.1f} GB are "
            "needed"
        )
        fix = "write_mode=jpg or a smaller max_resolution makes smaller files"
        raise NotReadyError.at(dst, rule, fix)
    for split in to_make:
        split.target.parent.mkdir(parents=True, exist_ok=True)
        _convert_split(split, options, progress)
    return [split.target for split in splits]


def _convert_split(split: Split, options: ConvertOptions, progress: Progress) -> None:
    """Write one file in permuted order, one chunk at a time, and read it back."""
    total, order = len(split), split.order(options)
    page_size = (
        PAGE_SIZE
        if options.max_resolution and 3 * options.max_resolution**2 <= PAGE_SIZE
        else LARGE_PAGE_SIZE
    )
    writer = BetonWriter(split.target, total, page_size, split.key(options))
    first = len(writer.records)
    try:
        for chunk in encode_in_order(split.source, order[first:], options):
            writer.append(_readable(chunk, options).samples)
            progress(len(writer.records), total)
        left_out = order[writer.records["size"] == 0]
        if len(left_out) == total:
            raise NotReadyError.of(split.source.origin, None, "has no readable image")
        skipped = tuple(split.source.name(index) for index in left_out)
        writer.finish(
            {
                "classes": split.source.classes,
                "source": split.source.origin,
                "skipped": skipped,
                "split": split.name if split.name in SPLITS else "",
                "source_sha256": split.source.fingerprint,
                "options": asdict(options),
            }
        )
        if complaint := _complaint(partial_path(split.target)):
            writer.discard()
            raise TrainingError(f"{split.target}: {complaint}; check the disk and convert again")
        writer.publish()
    except OSError as error:
        rule = (
            f"cannot be written: {error.strerror} ({len(writer.records):,} of {total:,} "
            "images are done and kept)"
        )
        fix = "free some space, then repeat the command: it resumes"
        raise NotReadyError.of(str(split.target), None, rule, fix) from error
    finally:
        writer.close()


def _left_out(split: Split, options: ConvertOptions) -> Iterator[Problem]:
    """Yield images that a resumable attempt skipped, if this one must not skip any."""
    done = split.journal(options)
    if options.on_bad_image == "error" and (done["size"] == 0).any():
        rule = (
            "was unreadable and was skipped by the earlier attempt (on_bad_image=skip) that "
            "this one would resume"
        )
        fix = (
            "on_bad_image=skip resumes without it; to start over:  rm "
            f"{shlex.quote(str(partial_path(split.target)))}"
        )
        for index in split.order(options)[: len(done)][done["size"] == 0]:
            yield Problem(split.source.name(index), None, rule, fix)


def _readable(chunk: EncodedChunk, options: ConvertOptions) -> EncodedChunk:
    """Refuse a chunk with unreadable images, unless they may be skipped."""
    if chunk.unreadable and options.on_bad_image == "error":
        fix = (
            "on_bad_image=skip skips and records such images; resnet-recipes doctor data DIR "
            "lists all of them"
        )
        raise NotReadyError([Problem(name, None, reason, fix) for name, reason in chunk.unreadable])
    return chunk


def _complaint(path: Path) -> str | None:
    """Read a finished file back: its description, and 500 of its images, decoded."""
    beton = open_beton(path)
    for index in random.Random(0).sample(range(len(beton)), min(SAMPLED, len(beton))):
        decoded = encode_one(
            BetonSource(beton), index, ConvertOptions(write_mode="raw", max_resolution=None)
        )
        if (
            not isinstance(decoded, Encoded)
            or [decoded.height, decoded.width] != beton.sizes[index].tolist()
        ):
            return f"sample {index} reads back differently from what was written"
    return None
