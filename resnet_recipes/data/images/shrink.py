"""Shrink images by the mean over the area that each new pixel covers."""

from typing import NamedTuple

import numpy as np

from resnet_recipes.data import native


class ImageSize(NamedTuple):
    """The size of an image in pixels."""

    height: int
    width: int


def compute_shrunk_size(height: int, width: int, longest: int | None) -> ImageSize:
    """Return an image's size if its longer side is at most `longest`; 600x800 becomes 375x500."""
    if longest is None or max(height, width) <= longest:
        return ImageSize(height, width)
    ratio = longest / max(height, width)
    return ImageSize(max(1, int(ratio * height)), max(1, int(ratio * width)))


def shrink_by_area(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Shrink uint8 [h, w, 3] to [height, width, 3].

    Bit-identical with the engine and in Python.
    """
    if pixels.shape[:2] == (height, width):
        return pixels
    if not native.explain_unavailable():
        pixels = np.ascontiguousarray(pixels)
        shrunk = native.shrink(pixels, pixels.shape[:2], (height, width), raw=True)
        assert shrunk is not None  # the engine refuses damaged JPEGs only
        return shrunk
    rows = _shrink_axis(pixels.astype(np.float32), height)
    return np.rint(_shrink_axis(rows.swapaxes(0, 1), width).swapaxes(0, 1)).astype(np.uint8)


def _shrink_axis(values: np.ndarray, length: int) -> np.ndarray:
    """Shrink the first axis to `length` by area means, as OpenCV's INTER_AREA does.

    Pillow's BOX uses complete rows only, which is visible if an image shrinks slightly.
    """
    scale = len(values) / length
    edges = np.arange(length + 1) * scale
    first = edges[:-1].astype(int)
    total = np.zeros((length, *values.shape[1:]), np.float32)
    for row in (first + offset for offset in range(int(np.ceil(scale)) + 1)):
        covered = np.minimum(row + 1, edges[1:]) - np.maximum(row, edges[:-1])
        share = np.maximum(covered, 0) / scale
        total += share.astype(np.float32)[:, None, None] * values[np.minimum(row, len(values) - 1)]
    return total
