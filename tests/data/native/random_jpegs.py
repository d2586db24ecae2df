"""Random baseline JPEGs with any sampling factors, which Pillow cannot write; for test_property."""

import struct
from typing import NamedTuple

import numpy as np

#: Number of codes by length, 1 to 16 bits, in tables K.3 and K.5 of T.81; random symbols get these
#: codes.
_DC_COUNTS = (0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0)
_AC_COUNTS = (0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125)
_DC_SYMBOLS = range(12)
_AC_SYMBOLS = (
    0x00,
    0xF0,
    *(run << 4 | size for run in range(16) for size in range(1, 11)),
)


class JpegKind(NamedTuple):
    height: int
    width: int
    factors: tuple[tuple[int, int], ...]  # horizontal and vertical, per component
    interval: int = 0  # units between restart markers; 0: none


class _Codes:
    """A Huffman table with symbols in random order, so that any symbol may have 16 bits."""

    def __init__(self, counts: tuple[int, ...], symbols: tuple[int, ...], rng: np.random.Generator):
        self.counts = counts
        self.symbols = rng.permutation(symbols).tolist()
        self.codes, code, symbol = {}, 0, iter(self.symbols)
        for length, count in enumerate(counts, start=1):
            for _ in range(count):
                self.codes[next(symbol)] = f"{code:0{length}b}"
                code += 1
            code <<= 1

    def make_segment(self, number: int) -> bytes:
        return _make_segment(0xC4, bytes([number, *self.counts, *self.symbols]))


def make_random_jpeg(kind: JpegKind, rng: np.random.Generator) -> bytes:
    """Return a JPEG with random coefficients, few in most blocks, and random Huffman tables."""
    tables = _Codes(_DC_COUNTS, _DC_SYMBOLS, rng), _Codes(_AC_COUNTS, _AC_SYMBOLS, rng)
    steps = np.concatenate([[8], rng.integers(1, 12, 63)])
    numbers = range(1, len(kind.factors) + 1)
    frame = struct.pack(">BHHB", 8, kind.height, kind.width, len(kind.factors))
    parts = zip(numbers, kind.factors, strict=True)
    frame += b"".join(bytes([number, h << 4 | v, 0]) for number, (h, v) in parts)
    scan = bytes([len(numbers), *(byte for number in numbers for byte in (number, 0)), 0, 63, 0])
    return b"".join(
        [
            b"\xff\xd8",
            _make_segment(0xDB, bytes([0, *steps.tolist()])),
            _make_segment(0xC0, frame),
            tables[0].make_segment(0x00),
            tables[1].make_segment(0x10),
            _make_segment(0xDD, struct.pack(">H", kind.interval)),
            _make_segment(0xDA, scan),
            _scan(kind, tables, rng),
            b"\xff\xd9",
        ]
    )


def _make_segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def _scan(kind: JpegKind, tables: tuple[_Codes, _Codes], rng: np.random.Generator) -> bytes:
    """Return the scan data: its units, with a marker after each interval."""
    across, down = (max(axis) for axis in zip(*kind.factors, strict=True))
    blocks = [h * v for h, v in kind.factors]
    if len(blocks) == 1:  # a unit is one block, for any factors
        across = down = 1
        blocks = [1]
    units = -(-kind.height // (8 * down)) * -(-kind.width // (8 * across))
    interval = kind.interval or units
    parts = []
    for first in range(0, units, interval):
        levels = [0] * len(blocks)
        bits = ""
        for _ in range(first, min(first + interval, units)):
            for part in np.repeat(np.arange(len(blocks)), blocks).tolist():
                level = int(np.clip(levels[part] + rng.integers(-20, 21), -90, 90))
                bits += _make_block(level - levels[part], tables, rng)
                levels[part] = level
        length = -(-len(bits) // 8)  # padded with ones; 0xFF is followed by 0
        packed = int(bits.ljust(8 * length, "1"), 2).to_bytes(length, "big")
        parts.append(packed.replace(b"\xff", b"\xff\0"))
    markers = [bytes([0xFF, 0xD0 + number % 8]) for number in range(len(parts) - 1)]
    return b"".join(part + marker for part, marker in zip(parts, [*markers, b""], strict=True))


def _encode_value(value: int) -> tuple[int, str]:
    """Return the number of bits of a coefficient, and the bits."""
    size = abs(value).bit_length()
    return size, f"{value if value > 0 else value + (1 << size) - 1:0{size}b}" if size else ""


def _make_block(difference: int, tables: tuple[_Codes, _Codes], rng: np.random.Generator) -> str:
    """Return the bits of a block with random coefficients, most of them zero.

    The last coefficient is rarely nonzero.
    """
    dc, ac = (table.codes for table in tables)
    size, bits = _encode_value(difference)
    bits = dc[size] + bits
    before = 0
    count = min(63, int(rng.geometric(0.25)) - 1)
    for place in np.sort(rng.choice(np.arange(1, 64), count, replace=False)).tolist():
        run = place - before - 1
        size, tail = _encode_value(int(rng.integers(1, 12) * rng.choice([-1, 1])))
        bits += run // 16 * ac[0xF0] + ac[run % 16 << 4 | size] + tail
        before = place
    return bits + (ac[0] if before < 63 else "")
