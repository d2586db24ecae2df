"""Facts that a JPEG contains about itself."""

import numpy as np
import pytest

from resnet_recipes.data.images.jpeg import ends_early, read_frame_size
from tests.shared.images import encode_image, make_photo


def make_jpeg(mode: str = "RGB", **options) -> np.ndarray:
    """Return an image of 31 rows and 47 columns as the bytes of a JPEG."""
    return np.frombuffer(encode_image(make_photo(0, 31, 47).convert(mode), **options), np.uint8)


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1), ("CMYK", 4)])
@pytest.mark.parametrize(
    "options",
    [{}, {"progressive": True}, {"comment": b"\xff\xc0" * 50}, {"exif": b"Exif\0\0" + bytes(90)}],
)
def test_header_is_found_after_other_segments(mode, channels, options):
    assert read_frame_size(make_jpeg(mode, **options)) == (31, 47, channels)


def test_fill_bytes_before_marker_are_allowed():
    assert read_frame_size(np.insert(make_jpeg(), 2, [0xFF, 0xFF])) == (31, 47, 3)


@pytest.mark.parametrize("cut", [slice(1, None), slice(None, -1), slice(0, 15), slice(0, 0)])
def test_jpeg_without_start_or_end_has_no_size(cut):
    assert read_frame_size(make_jpeg()[cut]) == (0, 0, 0)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}])
def test_end_marker_inside_segment_is_ignored(options):
    data = make_jpeg(comment=b"\xff\xd9" * 50, **options).tobytes()
    assert not ends_early(data)
    assert ends_early(data[:-40] + b"\xff\xd9" + data[-40:])
    assert ends_early(data + b"\0\0")
    assert ends_early(data[:-2])
