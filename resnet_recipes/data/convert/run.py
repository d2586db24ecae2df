"""Convert images, or another .beton file, to .beton files for FFCV, with a forecast, resume and verification."""

import hashlib
import random
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError, TrainingError
from resnet_recipes.base.paths import nearest_existing
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.beton.file import half_path, open_beton
from resnet_recipes.data.beton.writer import BetonWriter, partial_path, read_journal
from resnet_recipes.data.convert.encode import ConvertOptions, Encoded
from resnet_recipes.data.convert.pool import EncodedChunk, encode_in_order, encode_one, worker_count
from resnet_recipes.data.convert.source import BetonSource, FileSource, Halved, Source
from resnet_recipes.data.convert.speed import images_per_second
from resnet_recipes.data.files.folder import SUFFIXES
from resnet_recipes.data.files.layout import listing_of, parts
from resnet_recipes.data.files.survey import survey
from resnet_recipes.data.root import SPLITS

PAGE_SIZE = 8 << 20  # bytes, FFCV's own default
# bytes, used when images keep their size: one image must fit into a page
LARGE_PAGE_SIZE = 128 << 20
_ANY = {"workers": 0, "on_bad_image": ""}  # options that may change when an attempt is resumed
_SAMPLED = 500  # images encoded for a forecast, and read back at the end


@dataclass(frozen=True)
class Split:
    """One .beton file to make."""

    name: str  # "train", "val", or the file's stem
    source: Source
    target: Path


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


class Progress(NamedTuple):
    """The progress of a conversion."""

    split: str
    done: int  # images of this split so far, including those of an earlier attempt
    total: int
    bytes: int
    seconds_left: float


def plan_conversion(src: Path, dst: Path, options: ConvertOptions) -> list[Split]:
    """Return the files to make: DST/train.beton and DST/val.beton if SRC has both splits, else DST itself.

    Raises NotReadyError if SRC cannot be read, or RecipeError if DST does not fit it or options are
    wrong.
    """
    if problems := list(options.problems()):
        raise RecipeError(problems)
    src, dst = Path(src), Path(dst)
    sources = _sources(src, options)
    if len(sources) == 1 and dst.suffix != ".beton":
        rule = (
            "does not keep training and validation images apart, so the target must be one "
            "file that ends in .beton"
        )
        fix = (
            f"resnet-recipes convert {shlex.quote(str(src))} "
            f"{shlex.quote(str(dst / (src.stem + '.beton')))}"
        )
        raise RecipeError([Problem(str(src), None, rule, fix)])
    splits = [
        Split(name or dst.stem, source, dst / f"{name}.beton" if name else dst)
        for name, source in sources.items()
    ]
    if options.levels == 2:
        first = splits[0]
        small = Halved(first.source, options.max_resolution)
        splits.insert(1, Split(f"{first.name}.half", small, half_path(first.target)))
    return splits


def _sources(src: Path, options: ConvertOptions) -> dict[str, Source]:
    """Return the images under "train" and "val", or all under "". Raises NotReadyError with their problems."""
    if src.suffix == ".beton":
        return {"": BetonSource(open_beton(src))}
    config = DataConfig(
        root=str(src),
        val_share=options.val_share,
        val_seed=options.val_seed,
        nested_classes=options.nested_classes,
    )
    if not src.exists():
        raise NotReadyError([Problem(str(src), None, "does not exist")])
    try:
        there = parts(src)
        if "val" in there or options.val_share:
            survey(config, lambda line: None)
            return {split: FileSource(listing_of(config, split)) for split in SPLITS}
        if all((src / f"{split}.beton").is_file() for split in SPLITS):
            return {split: BetonSource(open_beton(src / f"{split}.beton")) for split in SPLITS}
        listing = (there.get("train") or there[""]).listing(config, lambda line: None)
    except OSError as error:
        raise NotReadyError(
            [Problem(str(src), None, f"cannot be read: {error.strerror}")]
        ) from None
    if not len(listing):
        raise NotReadyError(
            [Problem(str(src), None, f"has no images ({', '.join(SUFFIXES)}) in class folders")]
        )
    return {"": FileSource(listing)}


def forecast(src: Path, dst: Path, options: ConvertOptions) -> Forecast:
    """Encode up to 500 images of SRC to estimate the total size and time; takes a few seconds, writes nothing."""
    splits = plan_conversion(src, dst, options)
    images = sum(len(split.source.labels) for split in splits)
    chosen = random.Random(options.seed).sample(range(images), min(_SAMPLED, images))
    unreadable, encoded, size, started = [], {}, 0, time.perf_counter()
    for place in chosen:
        split, index = _located(splits, place)
        found = encode_one(split.source, index, options)
        if isinstance(found, Encoded):
            size += len(found.data)
            encoded.setdefault(split.name, []).append(found)
        else:
            unreadable.append(f"{split.source.name(index)}: {found}")
    seconds = (time.perf_counter() - started) / len(chosen)
    made = _made(splits, options)
    resumed = sum(len(split.source.labels) for split in splits[:made])
    resumed += sum(len(read_journal(split.target, _key(split, options))) for split in splits[made:])
    minutes = (images - resumed) * seconds / worker_count(options) / 60
    content = int(size / len(chosen) * images * 1.02)  # 2 % is lost at the ends of pages
    bytes_ = content + images * 48 + len(splits) * PAGE_SIZE
    levels = [encoded.get(split.name, []) for split in splits[: options.levels]]
    speeds = {
        side: speed
        for side, level in zip((176, 88), (levels[0], levels[-1]), strict=True)
        if (speed := images_per_second(level, side))
    }
    free = shutil.disk_usage(nearest_existing(Path(dst))).free
    return Forecast(
        sum(len(split.source.labels) for split in splits if not isinstance(split.source, Halved)),
        bytes_,
        minutes,
        free,
        resumed,
        len(chosen),
        tuple(unreadable),
        speeds,
    )


def convert(
    src: Path,
    dst: Path,
    options: ConvertOptions,
    progress: Callable[[Progress], None],
    expected: Forecast | None = None,
) -> list[Path]:
    """Write the files and return their paths; resumes an interrupted attempt at the same conversion.

    `expected` is the forecast, if already made. Old files of the same name stay until the new ones
    are complete. Raises NotReadyError (disk full, unreadable images) or TrainingError (a worker
    died, a file reads back differently).
    """
    splits = plan_conversion(src, dst, options)
    if left_out := [problem for split in splits for problem in _left_out(split, options)]:
        raise NotReadyError(left_out)
    needed, made = expected or forecast(src, dst, options), _made(splits, options)
    there = [split.target for split in splits[:made]] + [
        partial_path(split.target) for split in splits[made:]
    ]
    have = sum(path.stat().st_size for path in there if path.exists())
    if needed.bytes - have > needed.free_bytes:
        rule = (
            f"has {needed.free_bytes / 1e9:.1f} GB free, and about "
            f"{(needed.bytes - have) / 1e9:.1f} GB are needed"
        )
        fix = "write_mode=jpg or a smaller max_resolution makes smaller files"
        raise NotReadyError([Problem(str(dst), None, rule, fix)])
    for split in splits[made:]:
        split.target.parent.mkdir(parents=True, exist_ok=True)
        _convert_split(split, options, progress)
        _verify(split.target)
    return [split.target for split in splits]


def _convert_split(
    split: Split, options: ConvertOptions, progress: Callable[[Progress], None]
) -> None:
    """Write one file in permuted order, one chunk at a time."""
    total = len(split.source.labels)
    order = _order(split, options)
    page_size = (
        PAGE_SIZE
        if options.max_resolution and 3 * options.max_resolution**2 <= PAGE_SIZE
        else LARGE_PAGE_SIZE
    )
    writer = BetonWriter(split.target, total, page_size, _key(split, options))
    started, first = time.perf_counter(), len(writer.records)
    try:
        for chunk in encode_in_order(split.source, order[first:], options):
            writer.append(_readable(chunk, options).samples)
            done = len(writer.records)
            left = (time.perf_counter() - started) / (done - first) * (total - done)
            progress(Progress(split.name, done, total, writer.bytes_written, left))
        left_out = order[writer.records["size"] == 0]
        if len(left_out) == total:
            raise NotReadyError([Problem(split.source.origin, None, "has no readable image")])
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
    except OSError as error:
        rule = (
            f"cannot be written: {error.strerror} ({len(writer.records):,} of {total:,} "
            "images are done and kept)"
        )
        fix = "free some space, then repeat the command: it resumes"
        raise NotReadyError([Problem(str(split.target), None, rule, fix)]) from error
    finally:
        writer.close()


def _order(split: Split, options: ConvertOptions) -> np.ndarray:
    """Return the order of the images in the file: a permutation, int64 [images]."""
    total = len(split.source.labels)
    return (
        np.random.default_rng(options.seed).permutation(total)
        if options.shuffle
        else np.arange(total)
    )


def _left_out(split: Split, options: ConvertOptions) -> Iterator[Problem]:
    """Yield the images that an interrupted attempt skipped, if this one would resume it but must not skip any."""
    done = read_journal(split.target, _key(split, options))
    if options.on_bad_image == "error" and (done["size"] == 0).any():
        rule = (
            "was unreadable and was skipped by the earlier attempt (on_bad_image=skip) that "
            "this one would resume"
        )
        fix = (
            "on_bad_image=skip resumes without it; to start over:  rm "
            f"{shlex.quote(str(partial_path(split.target)))}"
        )
        for index in _order(split, options)[: len(done)][done["size"] == 0]:
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


def _verify(target: Path) -> None:
    """Read a finished file back: its description, and 500 of its images, decoded."""
    beton = open_beton(target)
    for index in random.Random(0).sample(range(len(beton)), min(_SAMPLED, len(beton))):
        decoded = encode_one(
            BetonSource(beton), index, ConvertOptions(write_mode="raw", max_resolution=None)
        )
        if (
            not isinstance(decoded, Encoded)
            or [decoded.height, decoded.width] != beton.sizes[index].tolist()
        ):
            said = f"{target}: sample {index} reads back differently from what was written"
            raise TrainingError(f"{said}; check the disk and convert again")


def _located(splits: list[Split], place: int) -> tuple[Split, int]:
    """Return the split of image number `place` among all, and its index in that split."""
    for split in splits[:-1]:
        if place < len(split.source.labels):
            return split, place
        place -= len(split.source.labels)
    return splits[-1], place


def _made(splits: list[Split], options: ConvertOptions) -> int:
    """Return how many files an interrupted attempt finished; 0 if it finished all."""
    return next((place for place, split in enumerate(splits) if not _is_made(split, options)), 0)


def _is_made(split: Split, options: ConvertOptions) -> bool:
    if partial_path(split.target).exists():
        return False
    try:
        sidecar = open_beton(split.target).sidecar
    except NotReadyError:
        return False
    if sidecar is None or (sidecar.skipped and options.on_bad_image == "error"):
        return False
    same = (
        sidecar.options | _ANY == asdict(options) | _ANY,
        sidecar.source_sha256 == split.source.fingerprint,
    )
    return all(same) and tuple(sidecar.classes) == tuple(split.source.classes)


def _key(split: Split, options: ConvertOptions) -> str:
    """Return a digest of everything that must be unchanged for an attempt to be resumed."""
    shared = (
        sorted((asdict(options) | _ANY).items()),
        split.source.fingerprint,
        split.source.classes,
    )
    return hashlib.sha256(repr(shared).encode()).hexdigest()
