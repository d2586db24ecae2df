"""The segments of a JPEG, without decoding it."""

from collections.abc import Iterator

import numpy as np

#: Start-of-frame markers are 0xC0 to 0xCF but for these: Huffman tables, reserved, arithmetic
#: tables (T.81, table B.1).
_NO_FRAME = (0xC4, 0xC8, 0xCC)
_SCAN = 0xDA


def frame_size(data: np.ndarray) -> tuple[int, int, int]:
    """Return (height, width, channels) of a JPEG, uint8 [bytes], or (0, 0, 0) if it lacks start, frame header or end.

    Walks some ten segments and reads nothing behind them but the last two bytes.
    """
    if data.size < 16 or data[:2].tobytes() != b"\xff\xd8" or data[-2:].tobytes() != b"\xff\xd9":
        return 0, 0, 0
    for marker, start, _ in _segments(data):
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            height, width = (
                int.from_bytes(data[place : place + 2], "big") for place in (start + 5, start + 7)
            )
            return height, width, int(data[start + 9])
    return 0, 0, 0


def height_at(data: bytes) -> int:
    """Return where a baseline JPEG of one scan stores its height; 0 for others, whose later scans need every row."""
    found, channels = 0, 0
    for marker, start, _ in _segments(data):
        if marker in (0xC0, 0xC1):  # start of frame: baseline, extended sequential
            found, channels = start + 5, data[start + 9]
        if marker == _SCAN and channels and data[start + 4] == channels:
            return found
    return 0


def _segments(data: bytes | np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield marker, start and end of each segment up to the first scan or the first invalid segment."""
    start = 2
    while start + 9 < len(data) and data[start] == 0xFF:
        marker = int(data[start + 1])
        if marker < 0xC0 or 0xD0 <= marker <= 0xD9:  # never found before a scan
            return
        # 1: fill byte
        end = start + (
            1 if marker == 0xFF else 2 + int.from_bytes(data[start + 2 : start + 4], "big")
        )
        yield marker, start, end
        if marker == _SCAN:
            return
        start = end
