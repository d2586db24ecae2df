"""Decode a part of an image file to RGB."""

import io
import warnings

import numpy as np
import simplejpeg
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

#: Larger images are refused before anything is allocated for them.
MAX_PIXELS = 64_000_000

#: What Pillow may find in a file, whatever the file is called.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM", "TIFF")


class BadImageError(ValueError):
    """A file that holds no image that can be used."""


class Picture:
    """An encoded image: its size at once, its pixels on demand.

    A JPEG that is not CMYK and has its end goes through libjpeg-turbo; whatever else, through Pillow, which also has the last word on
    damaged files. Both give the same pixels. The EXIF orientation is ignored, as by the pipelines that the published results come from.
    """

    def __init__(self, data: bytes):
        """Read the header. Raises BadImageError if there is none, or if it announces more than MAX_PIXELS."""
        self._data = data
        self._image = None
        self.height, self.width = _plain_jpeg(data)
        if not self.height:
            self._image = _opened(data)
            self.width, self.height = self._image.size
        if not 0 < self.height * self.width <= MAX_PIXELS:
            raise BadImageError(f"is {self.width} x {self.height} pixels; at most {MAX_PIXELS // 10**6} million are read")

    def crop(self, top: int, left: int, height: int, width: int, at_least: int) -> np.ndarray:
        """Return that part of the image as uint8 [h, w, 3], reduced by 2, 4 or 8 as long as both sides keep `at_least` pixels.

        A JPEG is reduced inside its inverse DCT, and is decoded no further down than the crop reaches.
        Raises BadImageError if the file is damaged so much that Pillow rejects it.
        """
        if self._image is None:
            shrink = 1
            while shrink < 8 and min(height, width) >= 2 * shrink * at_least:
                shrink *= 2
            rows = _decoded_jpeg(self._data, self.height, self.width, bottom=top + height, shrink=shrink)
            if rows is not None:
                first, last, begin, end = ((edge + shrink // 2) // shrink for edge in (top, top + height, left, left + width))
                return rows[first:last, begin:end]
            self._image = _opened(self._data)
        return _decoded_by_pillow(self._image)[top:top + height, left:left + width]


def resized(pixels: np.ndarray, height: int, width: int) -> Tensor:
    """Return uint8 [h, w, 3] pixels as [1, 3, height, width] in channels_last memory: bilinear, antialiased, within 1 of Pillow's."""
    image = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)
    if image.shape[2:] == (height, width):
        return image
    return F.interpolate(image, (height, width), mode="bilinear", antialias=True)


def _plain_jpeg(data: bytes) -> tuple[int, int]:
    """Return (height, width) of a JPEG that the fast path decodes, else (0, 0)."""
    if data[:2] != b"\xff\xd8" or data.rfind(b"\xff\xd9", -1024) < 0:      # cut off: Pillow shall say so
        return 0, 0
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except ValueError:
        return 0, 0
    return (height, width) if colours in ("YCbCr", "RGB", "Gray") else (0, 0)


def _decoded_jpeg(data: bytes, height: int, width: int, *, bottom: int, shrink: int) -> np.ndarray | None:
    """Return at least the first `bottom` rows of a JPEG at 1 / `shrink` of its size; None if libjpeg-turbo cannot."""
    if bottom + 32 < height and (at := _frame_at(data)):
        # The header announces fewer rows, so the decoder stops early. One more block row keeps the chroma of the last row right.
        height = min(height, -(-bottom // 16) * 16 + 16)
        data = b"".join((data[:at], height.to_bytes(2, "big"), data[at + 2:]))
    try:
        return simplejpeg.decode_jpeg(data, min_height=-(-height // shrink), min_width=-(-width // shrink), strict=False)
    except ValueError:
        return None


def _frame_at(data: bytes) -> int:
    """Return where a baseline JPEG of one scan stores its height; 0 for the others, whose later scans need every row."""
    at, height_at, channels = 2, 0, 0
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xDA:                                              # start of scan
            return height_at if channels and data[at + 4] == channels else 0
        if marker in (0xC0, 0xC1):                                      # start of frame: baseline, extended sequential
            height_at, channels = at + 5, data[at + 9]
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2:at + 4], "big")
    return 0


def _opened(data: bytes) -> Image.Image:
    """Return a Pillow image that has read the header."""
    try:
        with warnings.catch_warnings(action="ignore"):                  # odd EXIF is ignored, the size is judged here
            return Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception as error:                                          # Pillow raises what its parsers happen to raise
        known = not isinstance(error, Image.UnidentifiedImageError)
        raise BadImageError(f"cannot be opened: {error}" if known else "is not an image that Pillow can read") from None


def _decoded_by_pillow(image: Image.Image) -> np.ndarray:
    """Return the whole image as RGB, uint8 [H, W, 3]; 16 bits per channel lose the lower eight."""
    try:
        with warnings.catch_warnings(action="ignore"):
            if image.mode.startswith("I"):
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            return np.array(image.convert("RGB"))
    except Exception as error:
        raise BadImageError(f"cannot be decoded: {error}") from None
