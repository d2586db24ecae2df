"""Find what is unusual about one image file."""

import hashlib
import io
import warnings
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from resnet_recipes.data.images.decode import FORMATS, KINDS, BadImageError, Picture, read_file

#: Every oddity by name: its level, and what such images are.
ODDITIES = {
    "misnamed": (
        "warn",
        "images of a different type than their names say (read by their contents)",
    ),
    "cmyk": ("warn", "CMYK images (converted to RGB)"),
    "grey": ("ok", "grey images (converted to RGB)"),
    "deep": ("warn", "images with more than 8 bits per channel (reduced to 8)"),
    "transparent": ("warn", "images with transparency or a palette (converted to RGB)"),
    "animated": ("warn", "animated images (only the first frame is read)"),
    "rotated": (
        "warn",
        "images with an EXIF orientation (ignored, as in torchvision's ImageFolder)",
    ),
}

_MODES = {
    "CMYK": "cmyk",
    "L": "grey",
    "1": "grey",
    "RGBA": "transparent",
    "LA": "transparent",
    "P": "transparent",
}
_ORIENTATION = 0x0112


class Checked(NamedTuple):
    """One image file."""

    digest: bytes  # of its bytes: equal for equal files; empty if it cannot be read
    oddities: tuple[str, ...] = ()
    bad: str = ""  # why it cannot be read or decoded


def check_image(path: Path | str) -> Checked:
    """Read and decode one file as training does.

    Whatever is wrong with it is returned, never raised.
    """
    digest = b""
    try:
        data = read_file(path)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        picture = Picture(data)
        picture.whole()
    except BadImageError as error:
        return Checked(digest, bad=str(error))
    return Checked(digest, tuple(_oddities(Path(path).suffix.lower(), data)))


def _oddities(suffix: str, data: bytes) -> list[str]:
    """Return what is unusual in the header of an image that decodes."""
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(data), formats=FORMATS) as image,
        ):
            kind, mode, orientation = image.format, image.mode, image.getexif().get(_ORIENTATION, 1)
            animated = getattr(image, "is_animated", False) and kind != "MPO"
    except Exception:  # damaged EXIF or ICC data, which training never reads
        return []
    oddities = {
        _MODES.get(mode, ""): mode in _MODES,
        "deep": mode not in _MODES and mode[0] in "IF",
        "misnamed": suffix not in KINDS.get(kind, (suffix,)),
        "animated": animated,
        "rotated": orientation not in (0, 1),
    }
    return [name for name, holds in oddities.items() if holds]
