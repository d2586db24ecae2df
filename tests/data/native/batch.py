"""Batches of rows and kinds of JPEGs, for tests of the native decoder and its callers."""

import io
import struct

import numpy as np
from PIL import Image

from resnet_recipes.data.native import NativeDecoder
from resnet_recipes.data.native.rows import make_blank_rows
from tests.shared.tables import parse_rows, parse_settings

#: Pillow options for every kind of JPEG.
JPEGS = {
    name: parse_settings(settings)
    for name, settings in parse_rows(
        """
4:4:4 | subsampling='4:4:4'
4:2:2 | subsampling='4:2:2'
4:2:0 | subsampling='4:2:0'
progressive | progressive=true
optimized | optimize=true
restarts | restart_marker_rows=1
restarts within rows | restart_marker_blocks=4
restarts across rows | restart_marker_blocks=5 subsampling='4:2:0'
stored as RGB | keep_rgb=true
"""
    )
} | {"with EXIF": {"exif": b"Exif\0\0MM\0*\0\0\0\x08" + bytes(200)}}


def declare_size(data: bytes, height: int, width: int) -> bytes:
    """Return a JPEG whose header declares another size."""
    at = max(data.rfind(b"\xff\xc0"), data.rfind(b"\xff\xc2")) + 5  # skips a thumbnail
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def decode_with_pillow(data: bytes) -> np.ndarray:
    """Return all pixels as ImageFolder of torchvision reads them."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


class Batch:
    """Rows for images in memory, and the memory that they point to."""

    def __init__(self, images: list[bytes | np.ndarray], side: int, **columns):
        self.sources = [
            np.frombuffer(image, np.uint8) if isinstance(image, bytes) else image
            for image in images
        ]
        self.pixels = np.full((len(images), side, side, 3), 77, np.uint8)
        self.rows = make_blank_rows(len(images))
        self.rows["data"] = [source.ctypes.data for source in self.sources]
        self.rows["length"] = [source.size for source in self.sources]
        self.rows["output_size"] = side
        self.rows["pixels"] = self.pixels.ctypes.data + np.arange(len(images)) * side * side * 3
        for name, column in columns.items():
            self.rows[name] = column

    def fill(self, decoder: NativeDecoder) -> np.ndarray:
        assert decoder.wait(decoder.submit(self.rows), 60)
        return self.rows["status"]

    def decode(self, decoder: NativeDecoder) -> np.ndarray:
        assert not self.fill(decoder).any()
        return self.pixels
