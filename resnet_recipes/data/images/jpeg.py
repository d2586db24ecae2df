"""The segments of a JPEG, without decoding it."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

#: Start-of-frame markers are 0xC0 to 0xCF, except these: Huffman tables, reserved, arithmetic
#: coding tables (T.81, table B.1).
_NO_FRAME = (0xC4, 0xC8, 0xCC)
_START, _SCAN, _END = b"\xff\xd8", 0xDA, 0xD9  # markers; of the last two, the second byte

#: A marker after the header, other than markers without a segment: restart markers, and stuffed
#: bytes that only look like markers.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")


class FrameSize(NamedTuple):
    """The size of a JPEG from its frame header; zeros if the file is incomplete."""

    height: int = 0
    width: int = 0
    channels: int = 0


def read_frame_size(data: np.ndarray) -> FrameSize:
    """Return the size of a JPEG, uint8 [bytes].

    A JPEG is incomplete without its start, frame header or end. Reads about ten segments and the
    last two bytes.
    """
    frame = _find_header(data).frame
    if not frame or bytes(data[-2:]) != b"\xff\xd9":
        return FrameSize()
    height, width = (int.from_bytes(data[at : at + 2], "big") for at in (frame + 5, frame + 7))
    return FrameSize(height, width, int(data[frame + 9]))


def has_usual_chroma(data: bytes) -> bool:
    """Return whether a JPEG is grayscale or has chroma 4:4:4, 4:2:2, 4:2:0 or 4:4:0."""
    frame = _find_header(data).frame
    channels = data[frame + 9 : frame + 10]
    factors = data[frame + 11 : frame + 20 : 3]
    is_usual = channels == b"\1" or (channels == b"\3" and factors[1:] == b"\x11\x11")
    return bool(frame) and is_usual and factors[:1] in (b"\x11", b"\x21", b"\x12", b"\x22")


def count_passes(data: bytes) -> int:
    """Return the number of scans of a JPEG; 0 if it has a single scan.

    Reads the complete file. The result is an upper bound if the file is damaged.
    """
    frame, scan = _find_header(data)
    is_sequential = data[frame + 1] in (0xC0, 0xC1)  # baseline, extended
    if data[:2] != _START or (scan and is_sequential and data[scan + 4] == data[frame + 9]):
        return 0
    scans = sum(marker == _SCAN for marker, _ in _iterate_scan_segments(data))
    return scans or data.count(b"\xff\xda")


def ends_early(data: bytes) -> bool:
    """Return whether a JPEG has an end marker before its last two bytes, or no end marker.

    Reads the complete file.
    """
    ends = (start for marker, start in _iterate_scan_segments(data) if marker == _END)
    return next(ends, 0) + 2 != len(data)


def _iterate_scan_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield marker and start of each segment from the first scan to the end marker."""
    at = _find_header(data).scan or len(data)
    while match := _MARKER.search(data, at):
        marker = match[0][1]
        offset = match.end()
        yield marker, match.start()
        if marker == _END:
            return
        at = offset + int.from_bytes(data[offset : offset + 2], "big")


class _Header(NamedTuple):
    """The offsets of a JPEG's frame header and first scan; 0: there is none."""

    frame: int
    scan: int


def _find_header(data: bytes | np.ndarray) -> _Header:
    """Read the segments up to the first scan or invalid segment."""
    frame = 0
    at = 2 if bytes(data[:2]) == _START else len(data)
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = int(data[at + 1])
        if marker == _SCAN:
            return _Header(frame, at)
        if marker < 0xC0 or 0xD0 <= marker <= 0xD9:  # never occurs before a scan
            break
        if marker <= 0xCF and marker not in _NO_FRAME:
            frame = frame or at
        is_fill = marker == 0xFF
        at += 1 if is_fill else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return _Header(frame, 0)
