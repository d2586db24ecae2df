"""Shrink images by area averaging: each new pixel is the mean over the area that it covers."""

from typing import NamedTuple

import numpy as np

from resnet_recipes.data import native


class ImageSize(NamedTuple):
    """The size of an image in pixels."""

    height: int
    width: int


def compute_shrunk_size(height: int, width: int, longest: int | None) -> ImageSize:
    """Return the size with a longer side of at most `longest`: 375x500 from 600x800 at 500."""
    if longest is None or max(height, width) <= longest:
        return ImageSize(height, width)
    ratio = longest / max(height, width)
    return ImageSize(max(1, int(ratio * height)), max(1, int(ratio * width)))


def shrink_by_area(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Shrink uint8 [h, w, 3] to [height, width, 3], with the bits of the native decoder."""
    if pixels.shape[:2] == (height, width):
        return pixels
    if not native.find_decoder_fault():
        pixels = np.ascontiguousarray(pixels)
        shrunk = native.shrink(pixels, pixels.shape[:2], (height, width), raw=True)
        assert shrunk is not None  # the native decoder rejects only damaged JPEGs
        return shrunk
    rows = _shrink_axis(pixels.astype(np.float32), height)
    return np.rint(_shrink_axis(rows.swapaxes(0, 1), width).swapaxes(0, 1)).astype(np.uint8)


def _shrink_axis(values: np.ndarray, length: int) -> np.ndarray:
    """Shrink the first axis to `length` by area means, as OpenCV's INTER_AREA does.

    BOX in Pillow uses only complete rows, which is visible if an image shrinks slightly.
    """
    scale = len(values) / length
    edges = np.arange(length + 1) * scale
    first = edges[:-1].astype(int)
    total = np.zeros((length, *values.shape[1:]), np.float32)
    for row in (first + offset for offset in range(int(np.ceil(scale)) + 1)):
        covered = np.minimum(row + 1, edges[1:]) - np.maximum(row, edges[:-1])
        weight = np.maximum(covered, 0) / scale
        total += weight.astype(np.float32)[:, None, None] * values[np.minimum(row, len(values) - 1)]
    return total
