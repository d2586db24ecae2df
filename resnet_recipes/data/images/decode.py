"""Decode part of an image file to RGB."""

import io
import os
import warnings
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from resnet_recipes.base.reading import open_regular
from resnet_recipes.data import native
from resnet_recipes.data.images.jpeg import count_passes, has_usual_chroma
from resnet_recipes.data.images.shrink import shrink_by_area

#: File suffixes by Pillow format name. Suffixes decide which files are images; the content decides
#: their format.
KINDS = {
    "JPEG": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
    "PPM": (".ppm", ".pgm"),
    "TIFF": (".tif", ".tiff"),
    "GIF": (".gif",),
}

if find_spec("PIL._avif"):  # in Pillow wheels since 11.3
    KINDS["AVIF"] = (".avif",)
if find_spec("pillow_heif"):
    import pillow_heif

    pillow_heif.register_heif_opener()
    KINDS["HEIF"] = (".heic", ".heif")

FORMATS = tuple(KINDS)
SUFFIXES = tuple(suffix for suffixes in KINDS.values() for suffix in suffixes)

#: Limit of pixels; larger images are rejected before anything is allocated.
MAX_PIXELS = 64_000_000
_TOO_LARGE = f"has more than {MAX_PIXELS // 10**6} million pixels; save it smaller"

#: Limit of bytes; larger files are rejected unread.
MAX_IMAGE_BYTES = 1 << 28

#: Limits of a progressive JPEG, also in the native decoder. A scan passes over all coefficients.
MAX_SCANS = 100
MAX_PASSES = 256_000_000  # scans times pixels
USUAL_SCANS = 10  # scans of most files; fewer count as ten


class BadImageError(ValueError):
    """A file without a usable image. The message continues a sentence that starts with the path."""


def read_file(path: str | os.PathLike) -> bytes:
    """Return the content of an image file.

    Raises BadImageError unless it is a readable, regular file of at most MAX_IMAGE_BYTES.
    """
    try:
        with open_regular(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > MAX_IMAGE_BYTES:
                raise BadImageError(
                    f"is {size / 2**20:,.0f} MiB long; the limit is {MAX_IMAGE_BYTES >> 20} MiB"
                )
            return file.read()
    except OSError as error:
        raise BadImageError(f"cannot be read: {error.strerror}") from error


class ChangedError(Exception):
    """An image has changed since the run started."""


class Pixels:
    """A decoded image."""

    def __init__(self, pixels: np.ndarray):
        """Store uint8 [height, width, 3]."""
        self._pixels = pixels
        self.height, self.width = pixels.shape[:2]

    def crop(self, top: int, left: int, height: int, width: int) -> np.ndarray:
        """Return a box of the image as uint8 [height, width, 3]."""
        return self._pixels[top : top + height, left : left + width]

    def pixels(self) -> np.ndarray:
        """Return the image as uint8 [height, width, 3].

        Raises BadImageError if it cannot be decoded.
        """
        return self.crop(0, 0, self.height, self.width)

    def shrink(self, height: int, width: int) -> np.ndarray:
        """Shrink by area averaging to uint8 [height, width, 3].

        Raises BadImageError if it cannot be decoded.
        """
        return shrink_by_area(self.pixels(), height, width)

    def resized_crop(
        self, box: Sequence[int], image_size: int, reduce: bool = True, bicubic: bool = False
    ) -> np.ndarray:
        """Return a box (top, left, height, width) resized to uint8 [image_size, image_size, 3].

        Faster than Pillow, and within one gray level of it.
        """
        image = torch.from_numpy(self.crop(*box)).permute(2, 0, 1)[None]
        mode = "bicubic" if bicubic else "bilinear"
        resized = F.interpolate(image, (image_size, image_size), mode=mode, antialias=True)
        return resized[0].permute(1, 2, 0).numpy()


class Picture(Pixels):
    """An encoded image: its size at once, its pixels on demand, decoded by Pillow.

    EXIF orientation is ignored, as for the published results.
    """

    def __init__(self, data: bytes):
        """Read the header. Raises BadImageError if it is missing or the image is too expensive."""
        self.data = data
        self._image = _open_with_pillow(data)
        self.width, self.height = self._image.size
        area = self.height * self.width
        if not 0 < area <= MAX_PIXELS:
            raise BadImageError(_TOO_LARGE if area else "has no pixels")
        if (scans := count_passes(data)) > MAX_SCANS:
            raise BadImageError(f"has more than {MAX_SCANS} JPEG scans")
        if scans and area * max(scans, USUAL_SCANS) > MAX_PASSES:
            raise BadImageError(
                f"is a progressive JPEG of {area / 1e6:.0f} million pixels in {scans} scans; the "
                f"limit is {MAX_PASSES / 1e6 / max(scans, USUAL_SCANS):.0f} million. Save it "
                f"smaller, or not progressive"
            )

    def crop(self, top: int, left: int, height: int, width: int) -> np.ndarray:
        """Decode a box. Raises BadImageError if it cannot be decoded."""
        return to_rgb(self._image, (left, top, left + width, top + height))

    def shrink(self, height: int, width: int) -> np.ndarray:
        """Shrink by area averaging; the native decoder reads the JPEGs that it supports."""
        pixels = self._shrink_natively(height, width)
        return super().shrink(height, width) if pixels is None else pixels

    def check(self) -> None:
        """Raise BadImageError if the image cannot be decoded."""
        if self._shrink_natively(0, 0) is None:
            self.pixels()

    def _shrink_natively(self, height: int, width: int) -> np.ndarray | None:
        if self._image.format != "JPEG" or native.find_decoder_fault():
            return None
        data = np.frombuffer(self.data, np.uint8)
        return native.shrink(data, (self.height, self.width), (height, width))

    def resized_crop(
        self, box: Sequence[int], image_size: int, reduce: bool = True, bicubic: bool = False
    ) -> np.ndarray:
        """Return a box (top, left, height, width) resized to uint8 [image_size, image_size, 3].

        With `reduce`, the inverse DCT decodes a JPEG with usual chroma subsampling at 1/2, 1/4 or
        1/8 of its size. Both dimensions of the box then still have at least `image_size` pixels.
        The box is then cut at exact fractional pixels. Raises BadImageError if it cannot be
        decoded.
        """
        (top, left, height, width), shrink = box, 1
        while reduce and shrink < 8 and min(height, width) >= 2 * shrink * image_size:
            shrink *= 2
        if shrink == 1 or not has_usual_chroma(self.data):
            return super().resized_crop(box, image_size, reduce, bicubic)
        image = _open_with_pillow(self.data)  # Pillow can reduce an image only once
        image.draft(None, (self.width // shrink, self.height // shrink))
        bottom = top + height
        right = left + width
        above = top // shrink
        before = left // shrink
        part = to_rgb(image, (before, above, -(-right // shrink), -(-bottom // shrink)))
        inside = (
            left / shrink - before,
            top / shrink - above,
            right / shrink - before,
            bottom / shrink - above,
        )
        filter = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
        return np.asarray(Image.fromarray(part).resize((image_size, image_size), filter, inside))


def read_pixels(image: object) -> Pixels:
    """Convert an image in memory to pixels: file bytes, a Pillow image, an array or a tensor.

    The array is uint8 [h, w], [h, w, 3] or [h, w, 4]. The tensor is in the format of torchvision
    `decode_image`, uint8 [1 | 3 | 4, h, w]. Raises BadImageError if it is not an image in one of
    these forms.
    """
    sizes = getattr(image, "shape", ())
    if isinstance(image, Tensor):
        image = (image.movedim(0, -1).squeeze(-1) if image.ndim == 3 else image).numpy(force=True)
    if isinstance(image, bytes):
        return Pixels(Picture(image).pixels())
    if isinstance(image, np.ndarray):
        is_color = image.ndim == 3 and image.shape[2] in (3, 4)
        if image.dtype != np.uint8 or not (is_color or image.ndim == 2):
            shape = ", ".join(map(str, sizes))
            clause = "an image is uint8 [height, width, 3], or a tensor [3, height, width]"
            raise BadImageError(f"is {image.dtype} [{shape}]; {clause}")
        image = Image.fromarray(image) if image.size else Image.new("RGB", (0, 0))
    if not isinstance(image, Image.Image):
        raise BadImageError(
            f"is of type {type(image).__name__}, not an image of Pillow or an array"
        )
    if not image.width * image.height:
        raise BadImageError("has no pixels")
    return Pixels(to_rgb(image))


def resize_exactly(pixels: np.ndarray, height: int, width: int, bicubic: bool) -> np.ndarray:
    """Resize uint8 [h, w, 3] to [height, width, 3] with the antialiased Pillow filter.

    Resizes the width first with every version of Pillow. From Pillow 13 on, a single call resizes
    the height first if that removes more than twice as many pixels.
    """
    filter = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
    narrow = Image.fromarray(pixels).resize((width, len(pixels)), filter)
    return np.asarray(narrow.resize((width, height), filter))


def _open_with_pillow(data: bytes) -> Image.Image:
    """Return a Pillow image that has read the header."""
    try:
        # ignore warnings about EXIF; Picture checks the size
        with warnings.catch_warnings(action="ignore"):
            return Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.UnidentifiedImageError:
        raise BadImageError(_describe_unknown_format(data)) from None
    except Image.DecompressionBombError:  # the limit of Pillow is higher
        raise BadImageError(_TOO_LARGE) from None
    except (OSError, SyntaxError):  # such as "Truncated File Read"
        raise BadImageError("is damaged or incomplete") from None
    except Exception as error:  # parsers in Pillow raise many types
        raise BadImageError(f"cannot be opened: {error}") from None


def _describe_unknown_format(data: bytes) -> str:
    if data[4:11] in (b"ftyphei", b"ftyphev") and "HEIF" not in FORMATS:
        return "is HEIC;  pip install pillow-heif  makes it readable"
    return f"is not an image of a known format ({', '.join(FORMATS)})" if data else "is empty"


def to_rgb(image: Image.Image, box: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """Return an image, or a box (left, top, right, bottom), as RGB, uint8 [h, w, 3].

    Raises BadImageError if it cannot be decoded.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            if image.mode[0] in "IF":
                image = Image.fromarray(_to_eight_bits(image))
            return np.array(image.crop(box).convert("RGB"))
    except BadImageError:
        raise
    except (OSError, SyntaxError):  # such as "image file is truncated (3 bytes not processed)"
        raise BadImageError("is damaged or incomplete") from None
    except Exception as error:
        raise BadImageError(f"cannot be decoded: {error or type(error).__name__}") from None


def _to_eight_bits(image: Image.Image) -> np.ndarray:
    """Convert a high-bit-depth grayscale image to uint8: the upper 8 of 16 bits.

    32 bits have no standard range: 0 to 255, or 0 to 1.0.
    """
    values = np.asarray(image)
    # the formats have 16 bits
    if image.mode != "F" and (image.mode != "I" or image.format in ("PNG", "PPM")):
        return (values >> 8).astype(np.uint8)
    low = values.min()
    high = values.max()
    if not 0 <= low <= high <= 255:  # also false for NaN
        raise BadImageError(
            f"has 32-bit values from {low:g} to {high:g}; save it with 8 or 16 bits"
        )
    return np.rint(values * 255 if image.mode == "F" and high <= 1 else values).astype(np.uint8)
