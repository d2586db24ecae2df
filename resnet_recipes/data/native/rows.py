"""The rows that the native decoder fills: a mirror of the struct in src/row.h."""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import chain

import numpy as np

from resnet_recipes.augment import NativeOperation

SMALL = np.dtype(
    [  # the same image at half size, rounded up
        ("data", "u8"),  # 0: no small level
        ("length", "u8"),
        ("size", "i4", 2),
        ("crc", "u4"),
        ("raw", "?"),
    ],
    align=True,
)

_ROW = np.dtype(
    [
        ("data", "u8"),  # address of the encoded image or its pixels; 0: read a file
        ("folder", "u8"),  # address of a null-terminated path
        ("path", "u8"),  # address of the rest of the path, `length` bytes
        ("draws", "u8"),  # CROP: address of float64 [42]; DISTORTED: [404]
        ("operations", "u8"),  # address of OPERATION [operation_count]
        ("pixels", "u8"),  # address of the output, uint8 [output_size, output_size, 3]
        ("length", "u8"),  # bytes at `data` or `path`
        ("file_bytes", "u8"),  # file size when it was listed; 0: any
        ("box", "f8", 4),  # left, top, width, height: input for BOX, else output
        ("size", "i4", 2),  # image height, width: output if 0, else the expected value
        ("geometry", "i4"),
        ("output_size", "i4"),  # output height and width, pixels
        ("resize", "i4"),  # CENTER: the shorter side, pixels
        ("filter", "i4"),
        ("operation_count", "i4"),
        ("raw", "?"),  # `data` is uint8 [height, width, 3]
        ("mirror", "?"),
        ("full_size", "?"),  # always decode at full size
        ("checked", "?"),  # verify `crc`; cleared when it matches
        ("crc", "u4"),  # CRC-32 of the bytes
        ("status", "i4"),  # output
        ("error", "i4"),  # output: errno of UNREADABLE
        ("small", SMALL),  # used instead if the crop is at least twice the output size
        ("memory", "u8"),  # address of the counts in src/row.h (Memory); 0: keep nothing
        ("kept", "u8"),  # address of the images in that memory
        ("entry", "u8"),  # address of uint64, the entry of this image
        # longer side to shrink the full image to before cropping; 0: do not shrink
        ("longest", "i4"),
    ],
    align=True,
)

#: One operation of an augmentation: its index in OPERATIONS and its parameters.
OPERATION = np.dtype([("kind", "i8"), ("values", "f8", 6)])
OPERATIONS = (
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
    "color",
    "contrast",
    "brightness",
    "sharpness",
    "affine",
    "hue",
)

BOX, CROP, CENTER, DISTORTED, WHOLE = range(5)
BILINEAR, BICUBIC = range(2)


class Status(IntEnum):
    """The outcome of a row; src/row.h explains each."""

    WAITING = -2
    RUNNING = -1
    DONE = 0
    UNREADABLE = 1
    FOREIGN = 2
    DAMAGED = 3
    EXCESSIVE = 4
    MISMATCHED = 5
    ALTERED = 6
    CANCELLED = 7
    CUT_SHORT = 8


def make_blank_rows(count: int) -> np.ndarray:
    """Return rows [count] filled with zeros."""
    return np.zeros(count, _ROW)


def describe_layout() -> str:
    """Return a line for each field of these structs: name, offset and size."""
    lines = [*_iterate_fields(_ROW), f"row 0 {_ROW.itemsize}"]
    lines += [*_iterate_fields(OPERATION), f"operation 0 {OPERATION.itemsize}"]
    return "".join(f"{line}\n" for line in lines)


def _iterate_fields(dtype: np.dtype, name: str = "", start: int = 0) -> Iterator[str]:
    """Yield a line for each number in a struct that starts at `start`."""
    if dtype.fields:
        for key, (kind, offset, *_) in dtype.fields.items():
            yield from _iterate_fields(kind, f"{name}.{key}" if name else key, start + offset)
    elif dtype.subdtype:
        kind, (count,) = dtype.subdtype
        for index in range(count):
            yield from _iterate_fields(kind, f"{name}[{index}]", start + index * kind.itemsize)
    else:
        yield f"{name} {start} {dtype.itemsize}"


def put_operations(rows: np.ndarray, sampled: Sequence[Sequence[NativeOperation]]) -> np.ndarray:
    """Make rows [N] apply the operations of an augmentation, one list per row.

    Returns the memory that the rows point to.
    """
    counts = np.array([*map(len, sampled)])
    operations = np.zeros(counts.sum(), OPERATION)
    for operation, (name, values) in zip(operations, chain(*sampled), strict=True):
        operation["kind"] = OPERATIONS.index(name)
        operation["values"][: len(values)] = values
    rows["operation_count"] = counts
    rows["operations"] = operations.ctypes.data + (np.cumsum(counts) - counts) * OPERATION.itemsize
    return operations
