"""Decode part of an image file to RGB."""

import io
import os
import warnings

import numpy as np
import simplejpeg
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from resnet_recipes.data.images.jpeg import height_at
from resnet_recipes.data.images.kinds import FORMATS
from resnet_recipes.data.regular import open_regular

if "HEIF" in FORMATS:
    import pillow_heif

    pillow_heif.register_heif_opener()

#: Larger images are refused before anything is allocated for them.
MAX_PIXELS = 64_000_000

#: Larger files are refused unread.
MAX_BYTES = 1 << 28

#: Scans of a JPEG. Real progressive files have about ten; each one costs a pass over the whole
#: image.
MAX_SCANS = 100


class BadImageError(ValueError):
    """A file without a usable image. The message continues a sentence that begins with its path."""


def read_file(path: str | os.PathLike) -> bytes:
    """Return the content of an image file. Raises BadImageError unless it is a regular file of at most MAX_BYTES."""
    try:
        with open_regular(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > MAX_BYTES:
                raise BadImageError(
                    f"is {size / 2**20:,.0f} MiB long; the limit is {MAX_BYTES >> 20} MiB"
                )
            return file.read()
    except OSError as error:
        raise BadImageError(f"cannot be read: {error.strerror}") from None


class Pixels:
    """A decoded image."""

    def __init__(self, pixels: np.ndarray):
        """Take uint8 [height, width, 3]."""
        self._pixels = pixels
        self.height, self.width = pixels.shape[:2]

    def crop(self, top: int, left: int, height: int, width: int) -> np.ndarray:
        """Return that part of the image as uint8 [height, width, 3]."""
        return self._pixels[top : top + height, left : left + width]

    def resized_crop(
        self,
        top: int,
        left: int,
        height: int,
        width: int,
        side: int,
        reduce: bool = True,
        bicubic: bool = False,
    ) -> np.ndarray:
        """Return that part of the image resized to uint8 [side, side, 3]."""
        return (
            resized(self.crop(top, left, height, width), side, side, bicubic)[0]
            .permute(1, 2, 0)
            .numpy()
        )


class Picture(Pixels):
    """An encoded image: its size at once, its pixels on demand.

    libjpeg-turbo decodes JPEGs that are complete and not CMYK; Pillow decodes everything else and
    what libjpeg-turbo's binding rejects. Both give the same pixels. EXIF orientation is ignored, as
    for the published results.
    """

    def __init__(self, data: bytes):
        """Read the header. Raises BadImageError if it is missing or exceeds MAX_PIXELS or MAX_SCANS."""
        self._data = data
        self._image = None
        if data[:2] == b"\xff\xd8" and not height_at(data) and data.count(b"\xff\xda") > MAX_SCANS:
            raise BadImageError(f"has more than {MAX_SCANS} JPEG scans")
        self.height, self.width, self._colours = _plain_jpeg(data)
        if not self.height:
            self._image = _opened(data)
            self.width, self.height = self._image.size
        if not 0 < self.height * self.width <= MAX_PIXELS:
            raise BadImageError(
                f"is {self.width} x {self.height} pixels; the limit is "
                f"{MAX_PIXELS // 10**6} million"
            )

    def crop(self, top: int, left: int, height: int, width: int) -> np.ndarray:
        """Return that part of the image as uint8 [height, width, 3]; a JPEG is decoded only down to its bottom.

        Raises BadImageError if no decoder can read the image.
        """
        rows = self._decoded(bottom=top + height, shrink=1)
        if rows is not None:
            return rows[top : top + height, left : left + width]
        return _decoded_by_pillow(self._image, (left, top, left + width, top + height))

    def resized_crop(
        self,
        top: int,
        left: int,
        height: int,
        width: int,
        side: int,
        reduce: bool = True,
        bicubic: bool = False,
    ) -> np.ndarray:
        """Return that part of the image resized to uint8 [side, side, 3].

        With `reduce`, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size, inside its inverse DCT,
        while both sides of the part keep `side` pixels; the part is then cut out at exact fractions
        of pixels. Raises BadImageError.
        """
        shrink = 1
        while reduce and shrink < 8 and min(height, width) >= 2 * shrink * side:
            shrink *= 2
        rows = self._decoded(bottom=top + height, shrink=shrink) if shrink > 1 else None
        if rows is None:
            return super().resized_crop(top, left, height, width, side, reduce, bicubic)
        bottom, right, first, begin = top + height, left + width, top // shrink, left // shrink
        box = (
            left / shrink - begin,
            top / shrink - first,
            right / shrink - begin,
            bottom / shrink - first,
        )
        part = Image.fromarray(rows[first : -(-bottom // shrink), begin : -(-right // shrink)])
        filter = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
        return np.asarray(part.resize((side, side), filter, box))

    def _decoded(self, bottom: int, shrink: int) -> np.ndarray | None:
        """Return at least the first `bottom` rows at 1 / `shrink`; None, with the image open in Pillow, if need be."""
        if self._image is not None:
            return None
        rows = _decoded_jpeg(self._data, self.height, self.width, bottom=bottom, shrink=shrink)
        if rows is None:
            self._image = _opened(self._data)
        return rows


def resized(pixels: np.ndarray, height: int, width: int, bicubic: bool = False) -> Tensor:
    """Resize uint8 [h, w, 3] to channels_last [1, 3, height, width]: bilinear, antialiased, within 1 of Pillow's."""
    image = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)
    if image.shape[2:] == (height, width):
        return image
    return F.interpolate(
        image, (height, width), mode="bicubic" if bicubic else "bilinear", antialias=True
    )


def _plain_jpeg(data: bytes) -> tuple[int, int, str]:
    """Return height, width and colours of a JPEG that the fast path decodes, else (0, 0, "")."""
    # truncated: Pillow reports where
    if data[:2] != b"\xff\xd8" or data.rfind(b"\xff\xd9", -1024) < 0:
        return 0, 0, ""
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except Exception:  # ValueError; KeyError for 4:4:1 chroma
        return 0, 0, ""
    return (height, width, colours) if colours in ("YCbCr", "RGB", "Gray") else (0, 0, "")


def _decoded_jpeg(
    data: bytes, height: int, width: int, *, bottom: int, shrink: int
) -> np.ndarray | None:
    """Return at least the first `bottom` rows of a JPEG at 1 / `shrink` of its size; None if libjpeg-turbo cannot."""
    if bottom + 32 < height and (at := height_at(data)):
        # With fewer rows in the header the decoder stops early. One more block row keeps the last
        # row's chroma right.
        height = min(height, -(-bottom // 16) * 16 + 16)
        data = b"".join((data[:at], height.to_bytes(2, "big"), data[at + 2 :]))
    size = -(-height // shrink), -(-width // shrink)
    try:
        rows = simplejpeg.decode_jpeg(data, min_height=size[0], min_width=size[1], strict=False)
    except Exception:  # whatever it is, let Pillow decide
        return None
    return rows if rows.shape == (*size, 3) else None


def _opened(data: bytes) -> Image.Image:
    """Return a Pillow image that has read the header."""
    try:
        # odd EXIF is ignored; Picture judges the size
        with warnings.catch_warnings(action="ignore"):
            return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.UnidentifiedImageError:
        known = f"is not an image of a known format ({', '.join(FORMATS)})"
        raise BadImageError(known if data else "is empty") from None
    except Exception as error:  # Pillow's parsers raise all kinds
        raise BadImageError(f"cannot be opened: {error}") from None


def _decoded_by_pillow(image: Image.Image, box: tuple[int, int, int, int]) -> np.ndarray:
    """Return a part (left, top, right, bottom) of the image as RGB, uint8 [h, w, 3]."""
    try:
        with warnings.catch_warnings(action="ignore"):
            if image.mode[0] in "IF":
                image = Image.fromarray(_eight_bits(image))
            return np.array(image.crop(box).convert("RGB"))
    except BadImageError:
        raise
    except Exception as error:
        raise BadImageError(f"cannot be decoded: {error or type(error).__name__}") from None


def _eight_bits(image: Image.Image) -> np.ndarray:
    """Return deep grey as uint8: the upper half of 16 bits; of 32 bits, without agreed white, 0 to 255 or to 1.0."""
    values = np.asarray(image)
    # the formats have 16 bits
    if image.mode != "F" and (image.mode != "I" or image.format in ("PNG", "PPM")):
        return (values >> 8).astype(np.uint8)
    low, high = values.min(), values.max()
    if not 0 <= low <= high <= 255:  # NaN fails too
        raise BadImageError(
            f"has 32-bit values from {low:g} to {high:g}; save it with 8 or 16 bits"
        )
    return np.rint(values * 255 if image.mode == "F" and high <= 1 else values).astype(np.uint8)
