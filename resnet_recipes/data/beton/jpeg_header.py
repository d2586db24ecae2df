"""The size of a JPEG, without decoding it."""

import numpy as np

#: Start-of-frame markers are 0xC0 to 0xCF but for these: Huffman tables, reserved, arithmetic tables (T.81, table B.1).
_NO_FRAME = (0xC4, 0xC8, 0xCC)


def frame_size(data: np.ndarray) -> tuple[int, int, int]:
    """Return (height, width, channels) of a JPEG, uint8 [bytes], or (0, 0, 0) if it lacks start, frame header or end.

    Walks some ten segments and reads nothing behind them but the last two bytes.
    """
    end = data.size
    if end < 16 or data[0] != 0xFF or data[1] != 0xD8 or data[end - 2] != 0xFF or data[end - 1] != 0xD9:
        return 0, 0, 0
    at = 2
    while at + 9 < end:
        if data[at] != 0xFF:
            return 0, 0, 0
        marker = data[at + 1]
        if marker == 0xFF:                                    # fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            height, width = (int.from_bytes(data[place:place + 2], "big") for place in (at + 5, at + 7))
            return height, width, int(data[at + 9])
        if marker < 0xC0 or 0xD0 <= marker <= 0xDA:           # data before any frame header
            return 0, 0, 0
        at += 2 + int.from_bytes(data[at + 2:at + 4], "big")
    return 0, 0, 0
