"""What is odd about one image file."""

import hashlib
import io
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from resnet_recipes.data.files.decode import FORMATS, MAX_PIXELS

#: Every oddity by name: how bad it is, what it means, and what to do.
ODDITIES = {
    "unreadable": ("fix", "cannot be decoded, or are of a kind or size that is not read",
                   "replace or delete them;  in train/, data.on_bad_image=skip replaces them in each epoch"),
    "misnamed": ("warn", "are of another kind than their name says (they are read for what they are)", ""),
    "cmyk": ("warn", "are CMYK (converted to RGB)", ""),
    "grey": ("ok", "are grey (converted to RGB)", ""),
    "deep": ("warn", "have 16 bits a channel (cut to 8)", ""),
    "transparent": ("warn", "are transparent or have a palette (converted to RGB)", ""),
    "rotated": ("warn", "are to be rotated by their EXIF note (ignored, as by every ImageNet pipeline)", ""),
}

_KINDS = {"JPEG": (".jpg", ".jpeg"), "PNG": (".png",), "WEBP": (".webp",), "BMP": (".bmp",), "TIFF": (".tif", ".tiff"),
          "PPM": (".ppm", ".pgm")}
_MODES = {"CMYK": "cmyk", "L": "grey", "1": "grey", "RGBA": "transparent", "LA": "transparent", "P": "transparent"}
_ORIENTATION = 0x0112


class Checked(NamedTuple):
    """One image file."""

    digest: bytes         # of its bytes: equal for equal files
    oddities: tuple[str, ...]


def check_image(path: Path | str) -> Checked:
    """Read and decode one file; whatever is wrong with it is an oddity, never an exception."""
    try:
        data = Path(path).read_bytes()
    except OSError:
        return Checked(b"", ("unreadable",))
    digest = hashlib.blake2b(data, digest_size=16).digest()
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                return Checked(digest, ("unreadable",))
            kind, mode, orientation = image.format, image.mode, image.getexif().get(_ORIENTATION, 1)
            image.load()
    except (OSError, ValueError, SyntaxError, IndexError, KeyError, TypeError, Image.DecompressionBombError):
        return Checked(digest, ("unreadable",))
    found = [_MODES[mode]] if mode in _MODES else []
    if mode.startswith("I") or mode == "F":
        found.append("deep")
    if kind in _KINDS and Path(path).suffix.lower() not in _KINDS[kind]:
        found.append("misnamed")
    if orientation not in (0, 1):
        found.append("rotated")
    return Checked(digest, tuple(found))
