"""The .beton file of FFCV (version 2): its layout, checked before a single image is decoded.

Little-endian, as read by FFCV 1.0.2 (github.com/libffcv/ffcv, ffcv/types.py): a header, one
descriptor per field, one metadata row per sample, image content on pages of equal size, and the
allocation table at the end. FFCV checks only the version, and reads a damaged file as wrong pixels
under right labels. Nothing of FFCV is needed here.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from resnet_recipes.base.errors import NotReadyError, Problem
from resnet_recipes.base.reading import open_regular
from resnet_recipes.data.beton.sidecar import Sidecar, read_sidecar
from resnet_recipes.data.images.jpeg import ends_early, frame_size

VERSION = 2
JPEG, RAW = 0, 1  # how a sample is stored: `mode`
IMAGE_FIELD, INT_FIELD = 2, 1  # type ids of the two fields
HEADER = np.dtype(
    [
        ("version", "<u2"),
        ("num_fields", "<u2"),
        ("page_size", "<u4"),
        ("num_samples", "<u8"),
        ("table_ptr", "<u8"),
    ]
)
FIELD = np.dtype([("type_id", "u1"), ("name", "S16"), ("arguments", "u1", 1024)])
IMAGE = np.dtype([("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("ptr", "<u8")])
SAMPLE = np.dtype([("image", IMAGE), ("label", "<i8")], align=True)
ALLOCATION = np.dtype([("sample", "<u8"), ("ptr", "<u8"), ("size", "<u8")])
METADATA_START = HEADER.itemsize + 2 * FIELD.itemsize

_MOST_CLASSES = 1 << 16
_MOST_SAMPLES = 1 << 26  # 3 GiB of metadata and table
_LARGEST_IMAGE = 64_000_000  # pixels; also bounds the decoder's scratch memory


@dataclass(frozen=True)
class Beton:
    """A .beton file with consistent metadata; columns are in sample order."""

    path: Path
    page_size: int  # bytes; no sample crosses a page
    modes: np.ndarray  # uint8 [N], JPEG or RAW
    sizes: np.ndarray  # int64 [N, 2], height and width in pixels
    starts: np.ndarray  # int64 [N], bytes from the start of the file
    lengths: np.ndarray  # int64 [N], bytes
    labels: np.ndarray  # int64 [N]
    structure: str  # SHA-256 of everything that is not image content
    sidecar: Sidecar | None

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def content(self) -> np.ndarray:
        """The file as uint8 [bytes], mapped, not read."""
        return np.memmap(self.path, np.uint8, mode="r")

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Class names in label order, or numbers if there is no sidecar."""
        if self.sidecar:
            return self.sidecar.classes
        return tuple(map(str, range(int(self.labels.max()) + 1)))

    @cached_property
    def checksums(self) -> np.ndarray | None:
        """CRC-32 of every sample's bytes, uint32 [N]; None without a sidecar."""
        return self.sidecar.checksums if self.sidecar else None

    @cached_property
    def digest(self) -> str:
        """A digest of all samples; without a sidecar, only of their positions, sizes and labels."""
        crc32 = self.sidecar.crc32 if self.sidecar else ""
        return hashlib.sha256((self.structure + crc32).encode()).hexdigest()[:32]

    def sample(self, index: int) -> np.ndarray:
        """Read the stored bytes of one sample, uint8; a map of a truncated file would kill us."""
        with open_regular(self.path) as file:
            file.seek(self.starts[index])
            return np.frombuffer(file.read(self.lengths[index]), np.uint8)

    def complaint(self, index: int, data: np.ndarray | None = None) -> str | None:
        """Return what is wrong with one sample, undecoded, or None; `data` if already read."""
        try:
            data = self.sample(index) if data is None else data
        except OSError as error:
            return f"the file cannot be read: {error.strerror}"
        if len(data) < self.lengths[index]:
            return "the file was cut short after it was opened"
        if self.checksums is not None and zlib.crc32(data) != self.checksums[index]:
            return "checksum mismatch"
        if self.modes[index] == JPEG:
            height, width, channels = frame_size(data)
            is_right = (height, width) == tuple(self.sizes[index]) and channels in (1, 3)
            if not is_right or ends_early(data.tobytes()):
                return "its JPEG is damaged, or of another size than the file says"
        return None


def half_path(path: Path) -> Path:
    """Return the path of a .beton file's small level, its images at half size; it may not exist."""
    return path.with_name(f"{path.stem}.half.beton")


def open_beton(path: Path) -> Beton:
    """Read and check the description of a .beton file. Raises NotReadyError with what is wrong.

    Reads header, metadata and table (48 bytes a sample; about a second for ImageNet), never the
    images.
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            total = os.fstat(file.fileno()).st_size
            header = file.read(HEADER.itemsize)
            count, table_ptr, page_size = _check_header(path, header, total)
            fields = file.read(2 * FIELD.itemsize)
            _check_fields(path, np.frombuffer(fields, FIELD))
            metadata = file.read(count * SAMPLE.itemsize)
            file.seek(table_ptr)
            table = file.read(total - table_ptr)
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror}") from error
    structure = hashlib.sha256(b"".join((header, fields, metadata, table))).hexdigest()
    samples, allocations = np.frombuffer(metadata, SAMPLE), np.frombuffer(table, ALLOCATION)
    lengths = _check_table(path, samples["image"]["ptr"], allocations, (table_ptr, page_size))
    _check_images(path, samples["image"], lengths)
    sidecar = read_sidecar(path)
    if sidecar and (sidecar.examples, sidecar.bytes, sidecar.structure) != (
        count,
        total,
        structure,
    ):
        raise _refusal(path, "does not match its sidecar (.json): one of the two was changed")
    labels = samples["label"].astype(np.int64)
    _check_labels(path, labels, len(sidecar.classes) if sidecar else None)
    image = samples["image"]
    sizes = np.stack([image["height"], image["width"]], axis=1).astype(np.int64)
    starts = image["ptr"].astype(np.int64)
    modes = np.ascontiguousarray(image["mode"])
    return Beton(path, page_size, modes, sizes, starts, lengths, labels, structure, sidecar)


def pair_problems(train: Beton, val: Beton) -> Iterator[Problem]:
    """Yield why two files do not fit: labels that differ in meaning, or classes without images."""
    again = "convert both together:  resnet-recipes convert SRC DST"
    for beton, split in ((train, "train"), (val, "val")):
        if beton.sidecar and beton.sidecar.split not in ("", split):
            rule = f"is the {beton.sidecar.split} split according to its sidecar"
            yield Problem(str(beton.path), None, rule, f"rename it, or {again}")
    used = len(np.unique(train.labels))
    if used != len(train.classes):
        yield Problem(
            str(train.path),
            None,
            f"has images of only {used} of its {len(train.classes)} classes",
            again,
        )
    if train.sidecar and val.sidecar and train.classes != val.classes:
        yield Problem(
            str(val.path), None, "differs from train.beton in its classes or their order", again
        )
    if val.labels.max() >= len(train.classes):
        rule = (
            f"has label {val.labels.max()}, but train.beton has only {len(train.classes)} classes"
        )
        yield Problem(str(val.path), None, rule, again)


def _check_header(path: Path, header: bytes, total: int) -> tuple[int, int, int]:
    """Return the number of samples, the table's position and the page size of a valid header."""
    if len(header) < HEADER.itemsize or total < METADATA_START:
        raise _refusal(path, f"has {total} bytes, too few for a .beton file")
    row = np.frombuffer(header, HEADER)[0]
    count = int(row["num_samples"])
    table_ptr = int(row["table_ptr"])
    page_size = int(row["page_size"])
    if row["version"] == 0 and table_ptr == 0:
        raise _refusal(path, "was never finished: its header is still empty")
    if row["version"] != VERSION:
        raise _refusal(
            path,
            f"is not a .beton file of version {VERSION} (its header says version {row['version']})",
        )
    if row["num_fields"] != 2:
        raise _refusal(path, f"has {row['num_fields']} fields; an image and a label are expected")
    if not 4096 <= page_size <= 1 << 31 or page_size & (page_size - 1):
        raise _refusal(
            path,
            f"is damaged: its page size is {page_size}, not a power of two between 4096 and 2^31",
        )
    if not 0 < count <= _MOST_SAMPLES:
        raise _refusal(
            path,
            f"has {count:,} samples; the limit is {_MOST_SAMPLES:,}" if count else "has no samples",
        )
    if not METADATA_START + count * SAMPLE.itemsize <= table_ptr <= total:
        rule = (
            f"is damaged or cut short: {count} samples and a table at byte {table_ptr} do not "
            f"fit into {total} bytes"
        )
        raise _refusal(path, rule)
    if total - table_ptr != count * ALLOCATION.itemsize:
        entries = (total - table_ptr) / ALLOCATION.itemsize
        raise _refusal(
            path, f"is damaged or cut short: its table has {entries:g} entries for {count} samples"
        )
    return count, table_ptr, page_size


def _check_fields(path: Path, fields: np.ndarray) -> None:
    """Refuse anything but an image followed by an integer."""
    if fields["type_id"].tolist() != [IMAGE_FIELD, INT_FIELD]:
        types = fields["type_id"].tolist()
        raise _refusal(
            path,
            f"has fields of types {types}; an RGB image (2) and an integer label (1) are expected",
        )


def _check_table(
    path: Path, pointers: np.ndarray, allocations: np.ndarray, where: tuple[int, int]
) -> np.ndarray:
    """Return bytes by sample, int64 [N]; refuse missing, overlapping or misplaced samples."""
    table_ptr, page_size = where
    count = len(pointers)
    if not np.array_equal(np.sort(allocations["sample"]), np.arange(count, dtype=np.uint64)):
        raise _refusal(path, "is damaged: its table does not list every sample once")
    by_sample = allocations[np.argsort(allocations["sample"])]
    if not np.array_equal(by_sample["ptr"], pointers):
        raise _refusal(
            path,
            _first(by_sample["ptr"] != pointers, "has different positions in metadata and table"),
        )
    if int(by_sample["ptr"].max()) >= table_ptr or int(by_sample["size"].max()) > page_size:
        outside = (by_sample["ptr"] >= table_ptr) | (by_sample["size"] > page_size)
        raise _refusal(path, _first(outside, "lies outside the data, or is larger than a page"))
    start, size = by_sample["ptr"].astype(np.int64), by_sample["size"].astype(np.int64)
    outside = (
        (start < METADATA_START + count * SAMPLE.itemsize)
        | (start + size > table_ptr)
        | (size == 0)
    )
    if outside.any():
        raise _refusal(path, _first(outside, "is empty, or lies outside the data"))
    if (crossing := start // page_size != (start + size - 1) // page_size).any():
        raise _refusal(path, _first(crossing, "crosses a page"))
    order = np.argsort(start)
    if (overlap := start[order][:-1] + size[order][:-1] > start[order][1:]).any():
        pair = order[:-1][overlap][0], order[1:][overlap][0]
        raise _refusal(path, f"is damaged: samples {pair[0]} and {pair[1]} share bytes")
    return size


def _check_images(path: Path, images: np.ndarray, lengths: np.ndarray) -> None:
    """Refuse images of unknown kind or impossible size, and raw ones without 3 bytes a pixel."""
    if (unknown := images["mode"] > RAW).any():
        raise _refusal(path, _first(unknown, "is stored neither as JPEG nor raw"))
    pixels = images["height"].astype(np.int64) * images["width"]
    if (odd := (pixels == 0) | (pixels > _LARGEST_IMAGE)).any():
        raise _refusal(path, _first(odd, "has no pixels, or more than 64 million"))
    if (odd := (images["mode"] == RAW) & (lengths != 3 * pixels)).any():
        raise _refusal(path, _first(odd, "is raw, but does not have three bytes per pixel"))


def _check_labels(path: Path, labels: np.ndarray, classes: int | None) -> None:
    """Refuse labels outside the range of classes; without a sidecar, only impossible labels."""
    limit = _MOST_CLASSES if classes is None else classes
    if (outside := (labels < 0) | (labels >= limit)).any():
        raise _refusal(
            path,
            _first(outside, f"has label {labels[outside][0]}; labels go from 0 to {limit - 1}"),
        )


def _first(bad: np.ndarray, rule: str) -> str:
    others = f" ({int(bad.sum())} such samples)" if bad.sum() > 1 else ""
    return f"is damaged: sample {int(np.flatnonzero(bad)[0])} {rule}{others}"


def _refusal(path: Path, rule: str) -> NotReadyError:
    return NotReadyError.at(path, rule, "make it again:  resnet-recipes convert SRC DST")
