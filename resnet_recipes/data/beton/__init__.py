"""The .beton file of FFCV (version 2): its layout, checked before any image is decoded.

The layout is little-endian, as read by FFCV 1.0.2 (github.com/libffcv/ffcv, ffcv/types.py). A
header is followed by one descriptor per field, one metadata row per sample, image content on pages
of equal size, and the allocation table. FFCV checks only the version and reads a damaged file as
wrong pixels with correct labels. This package does not need FFCV.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np

from resnet_recipes.base.errors import Hint, NotReadyError, Problem
from resnet_recipes.base.reading import open_regular
from resnet_recipes.data.beton.sidecar import Sidecar, read_sidecar
from resnet_recipes.data.images.decode import MAX_PIXELS
from resnet_recipes.data.images.jpeg import ends_early, read_frame_size
from resnet_recipes.data.root import CONVERT_HINT

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

_MAX_CLASSES = 1 << 16  # limit of classes without a sidecar
_MAX_SAMPLES = 1 << 26  # limit of samples; 3 GiB of metadata and table


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
    def mapping(self) -> mmap:
        """The memory-mapped file."""
        with open_regular(self.path) as file:
            return mmap(file.fileno(), 0, access=ACCESS_READ)

    @property
    def content(self) -> np.ndarray:
        """The file as uint8 [bytes]."""
        return np.frombuffer(self.mapping, np.uint8)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Class names in label order; without a sidecar, numbers."""
        if self.sidecar:
            return self.sidecar.classes
        return tuple(map(str, range(int(self.labels.max()) + 1)))

    @cached_property
    def checksums(self) -> np.ndarray | None:
        """CRC-32 of every sample's bytes, uint32 [N]; None without a sidecar."""
        return self.sidecar.checksums if self.sidecar else None

    @cached_property
    def digest(self) -> str:
        """A digest of all samples; without a sidecar, of their positions, sizes and labels only."""
        crc32 = self.sidecar.crc32 if self.sidecar else ""
        return hashlib.sha256((self.structure + crc32).encode()).hexdigest()[:32]

    def sample(self, index: int) -> np.ndarray:
        """Read the stored bytes of one sample, uint8; reading a truncated mapping would crash.

        Raises OSError if the file cannot be read.
        """
        with open_regular(self.path) as file:
            file.seek(self.starts[index])
            return np.frombuffer(file.read(self.lengths[index]), np.uint8)

    def describe_damage(self, index: int, data: np.ndarray | None = None) -> str | None:
        """Return a description of damage that is visible without decoding, or None."""
        try:
            data = self.sample(index) if data is None else data
        except OSError as error:
            return f"the file cannot be read: {error.strerror}"
        if len(data) < self.lengths[index]:
            return "the file was truncated after it was opened"
        if self.checksums is not None and zlib.crc32(data.data) != self.checksums[index]:
            return "checksum mismatch"
        if self.modes[index] == JPEG:
            height, width, channels = read_frame_size(data)
            is_right = (height, width) == tuple(self.sizes[index]) and channels in (1, 3)
            if not is_right or ends_early(data.tobytes()):
                return "its JPEG is damaged, or its size differs from the size in the file"
        return None


def get_half_path(path: Path) -> Path:
    """Return the path of the small level of a .beton file: its images at half size.

    The file may not exist.
    """
    return path.with_name(f"{path.stem}.half.beton")


def open_beton(path: Path) -> Beton:
    """Read and check the header and tables of a .beton file.

    Reads header, metadata and table (48 bytes per sample; about a second for ImageNet), but not the
    images. Raises NotReadyError if the file cannot be read, breaks the format, or does not match
    its sidecar.
    """
    try:
        with open_regular(path) as file:
            total = os.fstat(file.fileno()).st_size
            header = file.read(HEADER.itemsize)
            _raise_first(path, _find_header_faults(header, total))
            row = np.frombuffer(header, HEADER)[0]
            count, table_ptr, page_size = (
                int(row[key]) for key in ("num_samples", "table_ptr", "page_size")
            )
            fields = file.read(2 * FIELD.itemsize)
            metadata = file.read(count * SAMPLE.itemsize)
            file.seek(table_ptr)
            table = file.read(total - table_ptr)
    except OSError as error:
        raise NotReadyError.at(path, f"cannot be read: {error.strerror}", CONVERT_HINT) from error
    structure = hashlib.sha256(b"".join((header, fields, metadata, table))).hexdigest()
    types = np.frombuffer(fields, FIELD)["type_id"].tolist()
    samples = np.frombuffer(metadata, SAMPLE)
    allocations = np.frombuffer(table, ALLOCATION)
    allocations = allocations[np.argsort(allocations["sample"])]
    image = samples["image"]
    if types != [IMAGE_FIELD, INT_FIELD]:
        expected = "an RGB image (2) and an integer label (1) are expected"
        raise NotReadyError.at(path, f"has fields of types {types}; {expected}", CONVERT_HINT)
    _raise_first(path, _find_table_faults(image["ptr"], allocations, table_ptr, page_size))
    lengths = allocations["size"].astype(np.int64)
    _raise_first(path, _find_image_faults(image, lengths))
    sidecar = read_sidecar(path)
    labels = samples["label"].astype(np.int64)
    sidecar_facts = sidecar and (sidecar.examples, sidecar.bytes, sidecar.structure)
    if sidecar_facts not in (None, (count, total, structure)):
        clause = "does not match its sidecar (.json): one of the two was changed"
        raise NotReadyError.at(path, clause, CONVERT_HINT)
    _raise_first(
        path, _find_label_faults(labels, len(sidecar.classes) if sidecar else _MAX_CLASSES)
    )
    sizes = np.stack([image["height"], image["width"]], axis=1).astype(np.int64)
    starts = image["ptr"].astype(np.int64)
    modes = np.ascontiguousarray(image["mode"])
    return Beton(path, page_size, modes, sizes, starts, lengths, labels, structure, sidecar)


def find_pair_problems(train: Beton, val: Beton) -> Iterator[Problem]:
    """Yield why two files cannot be the splits of one run."""
    again = (CONVERT_HINT, Hint("convert both together"))
    for beton, split in ((train, "train"), (val, "val")):
        if beton.sidecar and beton.sidecar.split not in ("", split):
            clause = f"is the {beton.sidecar.split} split according to its sidecar"
            yield Problem(str(beton.path), None, clause, (*again, Hint("or rename it")))
    used_count = len(np.unique(train.labels))
    count = len(train.classes)
    highest = val.labels.max()
    if used_count != count:
        clause = f"has images of only {used_count} of its {count} classes"
        yield Problem(str(train.path), None, clause, again)
    if train.sidecar and val.sidecar and train.classes != val.classes:
        clause = "differs from train.beton in its classes or their order"
        yield Problem(str(val.path), None, clause, again)
    if highest >= count:
        clause = f"has label {highest}, but train.beton has only {count} classes"
        yield Problem(str(val.path), None, clause, again)


def _raise_first(path: Path, faults: Iterator[str]) -> None:
    """Raise NotReadyError for the first fault, if any; it may have caused the others."""
    for fault in faults:
        raise NotReadyError.at(path, fault, CONVERT_HINT)


def _find_header_faults(header: bytes, total: int) -> Iterator[str]:
    if len(header) < HEADER.itemsize or total < METADATA_START:
        yield f"has {total} bytes, too few for a .beton file"
    version, fields, page_size, count, table_ptr = map(int, np.frombuffer(header, HEADER)[0])
    if version == 0 and table_ptr == 0:
        yield "was never finished: its header is still empty"
    if version != VERSION:
        yield f"is not a .beton file of version {VERSION} (its header has version {version})"
    if fields != 2:
        yield f"has {fields} fields; an image and a label are expected"
    if not 4096 <= page_size <= 1 << 31 or page_size & (page_size - 1):
        yield f"is damaged: its page size is {page_size}, not a power of two from 4096 to 2^31"
    if not count:
        yield "has no samples"
    if count > _MAX_SAMPLES:
        yield f"has {count:,} samples; the limit is {_MAX_SAMPLES:,}"
    if not METADATA_START + count * SAMPLE.itemsize <= table_ptr <= total:
        fault = f"{count} samples and a table at byte {table_ptr} do not fit into {total} bytes"
        yield f"is damaged or truncated: {fault}"
    if (entries := (total - table_ptr) / ALLOCATION.itemsize) != count:
        yield f"is damaged or truncated: its table has {entries:g} entries for {count} samples"


def _find_table_faults(
    pointers: np.ndarray, allocations: np.ndarray, table_ptr: int, page_size: int
) -> Iterator[str]:
    """Yield missing, overlapping or misplaced samples; table entries are in sample order."""
    count = len(pointers)
    if not np.array_equal(allocations["sample"], np.arange(count, dtype=np.uint64)):
        yield "is damaged: its table does not list every sample once"
    moved = allocations["ptr"] != pointers
    yield from _find_bad(moved, "has different positions in metadata and table")
    outside = (allocations["ptr"] >= table_ptr) | (allocations["size"] > page_size)
    yield from _find_bad(outside, "lies outside the data, or is larger than a page")
    start = pointers.astype(np.int64)
    size = allocations["size"].astype(np.int64)
    outside = start < METADATA_START + count * SAMPLE.itemsize
    outside |= (start + size > table_ptr) | (size == 0)
    yield from _find_bad(outside, "is empty, or lies outside the data")
    yield from _find_bad(start // page_size != (start + size - 1) // page_size, "crosses a page")
    order = np.argsort(start)
    if (overlap := start[order][:-1] + size[order][:-1] > start[order][1:]).any():
        pair = order[:-1][overlap][0], order[1:][overlap][0]
        yield f"is damaged: samples {pair[0]} and {pair[1]} overlap"


def _find_image_faults(images: np.ndarray, lengths: np.ndarray) -> Iterator[str]:
    """Yield images of unknown kind or impossible size, and raw images without 3 bytes/pixel."""
    pixel_counts = images["height"].astype(np.int64) * images["width"]
    yield from _find_bad(images["mode"] > RAW, "is stored neither as JPEG nor raw")
    too_many = (pixel_counts == 0) | (pixel_counts > MAX_PIXELS)
    yield from _find_bad(too_many, f"has no pixels, or more than {MAX_PIXELS // 10**6} million")
    odd = (images["mode"] == RAW) & (lengths != 3 * pixel_counts)
    yield from _find_bad(odd, "is raw, but does not have three bytes per pixel")


def _find_label_faults(labels: np.ndarray, classes: int) -> Iterator[str]:
    if (outside := (labels < 0) | (labels >= classes)).any():
        clause = f"has label {labels[outside][0]}; labels go from 0 to {classes - 1}"
        yield from _find_bad(outside, clause)


def _find_bad(bad: np.ndarray, fault: str) -> Iterator[str]:
    """Yield the fault of the first of these samples, if any, and the number of samples."""
    if bad.any():
        others = f" ({int(bad.sum())} such samples)" if bad.sum() > 1 else ""
        yield f"is damaged: sample {int(np.flatnonzero(bad)[0])} {fault}{others}"
