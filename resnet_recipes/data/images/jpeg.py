"""The segments of a JPEG, without decoding it."""

import re
from collections.abc import Iterator

import numpy as np

#: Start-of-frame markers are 0xC0 to 0xCF but for these: Huffman tables, reserved, arithmetic
#: tables (T.81, table B.1).
_NO_FRAME = (0xC4, 0xC8, 0xCC)
_START, _SCAN, _END = b"\xff\xd8", 0xDA, 0xD9

#: A marker after the header, other than those without a segment: restarts, and bytes that only look
#: like one.
_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")


def read_frame_size(data: np.ndarray) -> tuple[int, int, int]:
    """Return (height, width, channels) of a JPEG, uint8 [bytes]; zeros if parts are missing.

    These are its start, frame header and end.

    Walks some ten segments and reads nothing behind them but the last two bytes.
    """
    if data.size < 16 or data[-2:].tobytes() != b"\xff\xd9" or not (start := _find_frame(data)):
        return 0, 0, 0
    height, width = (
        int.from_bytes(data[place : place + 2], "big") for place in (start + 5, start + 7)
    )
    return height, width, int(data[start + 9])


def has_usual_chroma(data: bytes) -> bool:
    """Return whether a JPEG is grey or its chroma 4:4:4, 4:2:2, 4:2:0 or 4:4:0; as src/jpeg.cpp."""
    start = _find_frame(data)
    channels, factors = data[start + 9 : start + 10], data[start + 11 : start + 20 : 3]
    is_usual = channels == b"\1" or (channels == b"\3" and factors[1:] == b"\x11\x11")
    return bool(start) and is_usual and factors[:1] in (b"\x11", b"\x21", b"\x12", b"\x22")


def count_passes(data: bytes) -> int:
    """Return how many scans a JPEG has if each is a pass over all coefficients.

    0 if one scan has everything.

    Reads the whole file. Where it cannot be followed, the result is the most that there may be.
    """
    frame, scan = _find_frame(data), _find_scan(data)
    is_sequential = data[frame + 1] in (0xC0, 0xC1)  # baseline, extended
    if data[:2] != _START or (scan and is_sequential and data[scan + 4] == data[frame + 9]):
        return 0
    scans = sum(marker == _SCAN for marker, _ in _list_scan_segments(data))
    return scans or data.count(b"\xff\xda")


def ends_early(data: bytes) -> bool:
    """Return whether a JPEG has an end marker before its last two bytes, or none at all.

    Reads the whole file.
    """
    return next((at for marker, at in _list_scan_segments(data) if marker == _END), 0) + 2 != len(
        data
    )


def _find_frame(data: bytes | np.ndarray) -> int:
    """Return where the frame header starts; 0 if there is none."""
    found = (
        start
        for marker, start in _list_segments(data)
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME
    )
    return next(found, 0)


def _find_scan(data: bytes) -> int:
    """Return where the first scan starts; 0 if there is none."""
    return next((start for marker, start in _list_segments(data) if marker == _SCAN), 0)


def _list_scan_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield marker and start of each segment from the first scan to the end marker."""
    at = _find_scan(data) or len(data)
    while found := _MARKER.search(data, at):
        marker, place = found[0][1], found.end()
        yield marker, found.start()
        if marker == _END:
            return
        at = place + int.from_bytes(data[place : place + 2], "big")


def _list_segments(data: bytes | np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield marker and start of a JPEG's segments up to the first scan or invalid segment."""
    start = 2 if bytes(data[:2]) == _START else len(data)
    while start + 9 < len(data) and data[start] == 0xFF:
        marker = int(data[start + 1])
        if marker < 0xC0 or 0xD0 <= marker <= 0xD9:  # never found before a scan
            return
        yield marker, start
        if marker == _SCAN:
            return
        is_fill = marker == 0xFF
        start += 1 if is_fill else 2 + int.from_bytes(data[start + 2 : start + 4], "big")
