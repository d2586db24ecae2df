"""Decoded images have the right pixels for every kind of file; invalid files give an error."""

import random
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from torchvision.transforms import v2

from resnet_recipes.data.images import decode
from resnet_recipes.data.images.decode import (
    FORMATS,
    BadImageError,
    Picture,
    read_file,
    resize_exactly,
)
from resnet_recipes.data.images.jpeg import count_passes
from tests.data.native.batch import JPEGS, declare_size, decode_with_pillow
from tests.shared.disk_faults import create_special_file
from tests.shared.images import HEIGHT, WIDTH, encode_image, make_photo
from tests.shared.tables import parse_rows

PHOTO = make_photo()
PROGRESSIVE = encode_image(PHOTO, progressive=True)
LAST = PROGRESSIVE.rindex(b"\xff\xda")  # the last scan


def decode_all(data: bytes) -> np.ndarray:
    return Picture(data).pixels()


def to_rgb_array(gray: np.ndarray) -> np.ndarray:
    """Return [H, W] values as [H, W, 3]."""
    return np.repeat(gray.astype(np.uint8)[..., None], 3, axis=2)


def repeat_scans(data: bytes, times: int) -> bytes:
    last = data.rindex(b"\xff\xda")
    return data[:last] + times * data[last:-2] + data[-2:]


def test_decoded_pixels_equal_pillow_for_every_crop():
    files = [encode_image(PHOTO, **options) for options in JPEGS.values()]
    files += [encode_image(PHOTO.convert(mode)) for mode in ("L", "CMYK")]
    files += [encode_image(PHOTO.convert(mode), "PNG") for mode in ("RGBA", "L", "LA", "P", "1")]
    files += [encode_image(PHOTO, kind) for kind in ("PNG", "WEBP", "BMP", "TIFF", "PPM")]
    turned = encode_image(PHOTO.resize((64, 64)), subsampling="4:4:4")
    at = turned.index(b"\xff\xc0") + 11
    files += [turned[:at] + b"\x14" + turned[at + 1 :]]  # 4:1:1, rotated by 90 degrees
    for data in files:
        expected = decode_with_pillow(data)
        assert np.array_equal(decode_all(data), expected)
        assert np.array_equal(Picture(data).crop(31, 5, 17, 50), expected[31:48, 5:55])


def test_16_bit_gray_keeps_upper_eight_bits():
    deep = (np.arange(40 * 50, dtype=np.uint16) * 32).reshape(40, 50)
    files = [encode_image(Image.fromarray(deep), kind) for kind in ("PNG", "TIFF")]
    files += [b"P5 50 40 65535\n" + deep.astype(">u2").tobytes()]
    for data in files:
        assert np.array_equal(decode_all(data), to_rgb_array(deep >> 8))


def test_32_bit_gray_needs_a_known_white():
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    floats = np.float32([[1e4, 0], [1, 2]])
    for stored, expected in ((20 * values, 20 * values), (np.float32(values / 255), values)):
        assert np.array_equal(
            decode_all(encode_image(Image.fromarray(stored), "TIFF")), to_rgb_array(expected)
        )
    for unknown in (values << 24, floats, floats * np.float32(np.nan)):
        message = r"32-bit values from .*; save it with 8 or 16 bits"
        with pytest.raises(BadImageError, match=message):
            decode_all(encode_image(Image.fromarray(unknown), "TIFF"))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("odd"), OSError("bad")])
def test_pillow_error_becomes_a_bad_image_error(monkeypatch, error):
    monkeypatch.setattr("PIL.Image.Image.convert", Mock(side_effect=error))
    for damaged in (PROGRESSIVE, encode_image(PHOTO, "PNG")):
        message = (
            "is damaged or incomplete" if isinstance(error, OSError) else "cannot be decoded: "
        )
        with pytest.raises(BadImageError, match=message):
            decode_all(damaged)


def test_heic_is_named_with_any_suffix(monkeypatch):
    monkeypatch.setattr(decode, "FORMATS", ("JPEG", "PNG"))  # without pillow-heif
    with pytest.raises(BadImageError, match="is HEIC;  pip install pillow-heif"):
        Picture(b"\0\0\0\x24ftypheic\0\0\0\0mif1heic" + bytes(100))


def test_jpeg_with_thousands_of_scans_is_rejected():
    assert decode_all(repeat_scans(PROGRESSIVE, 80)).shape == (HEIGHT, WIDTH, 3)
    # markers without a length do not hide a frame
    for data in (PROGRESSIVE, PROGRESSIVE[:2] + b"\xff\xd0" + bytes(2) + PROGRESSIVE[2:]):
        with pytest.raises(BadImageError, match="more than 100 JPEG scans"):
            Picture(repeat_scans(data, 150))


def test_progressive_jpeg_beyond_scan_limit_is_rejected():
    assert Picture(declare_size(PROGRESSIVE, 5000, 5000)).height == 5000
    first = PROGRESSIVE.index(b"\xff\xda")
    few = PROGRESSIVE[: PROGRESSIVE.index(b"\xff\xda", first + 2)] + b"\xff\xd9"
    for data, size, message in (
        (PROGRESSIVE, (7900, 7850), "62 million pixels in 10 scans; the limit is 26 mil"),
        (
            repeat_scans(PROGRESSIVE, 10),
            (5000, 5000),
            "25 million pixels in 19 scans; the limit is 13",
        ),
        (few, (6000, 5000), "30 million pixels in 1 scans; the limit is 26 mil"),
    ):
        with pytest.raises(BadImageError, match=message):
            Picture(declare_size(data, *size))


@pytest.mark.parametrize("size", [(8001, 8000), (10_000, 9_500), (20_000, 12_000)])
def test_images_beyond_any_limit_get_same_advice(size):
    # the second is beyond the limit at which Pillow warns, the third where it raises
    with pytest.raises(BadImageError, match=r"^has more than 64 million pixels; save it smaller$"):
        Picture(declare_size(encode_image(PHOTO), *size))


def test_scan_count_ignores_thumbnails_and_orientation():
    thumbnail = encode_image(PHOTO.resize((40, 30)), progressive=True)
    turned = Image.Exif()
    turned[0x0112] = 6
    assert decode_all(encode_image(PHOTO, exif=turned)).shape == (
        HEIGHT,
        WIDTH,
        3,
    )  # EXIF is ignored
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + thumbnail
    data = declare_size(encode_image(PHOTO, progressive=True, exif=exif), 5000, 5000)
    assert Picture(data + thumbnail).height == 5000
    assert count_passes(encode_image(PHOTO, exif=exif) + thumbnail) == 0
    assert count_passes(data + thumbnail) == 10


@pytest.mark.parametrize(
    "kind", [kind for kind in ("GIF", "WEBP", "PNG", "AVIF", "HEIF") if kind in FORMATS]
)
def test_animation_is_read_as_its_first_frame(kind):
    black = Image.new(PHOTO.mode, PHOTO.size)
    data = encode_image(PHOTO, kind, save_all=True, append_images=[black, black], quality=90)
    # GIF has 256 colors; transparent pixels are black
    assert np.abs(decode_all(data).astype(int) - np.asarray(PHOTO)).mean() < 15
    assert np.array_equal(decode_all(data), decode_with_pillow(data))


@pytest.mark.parametrize(("side", "shrink"), [(200, 1), (100, 2), (64, 4), (45, 4), (20, 8)])
def test_reduced_jpeg_is_cropped_at_exact_fractions(side, shrink, monkeypatch):
    data = encode_image(PHOTO.resize((WIDTH * 4, HEIGHT * 4), Image.BICUBIC), quality=95)
    box = (101, 203, 400, 333)
    sizes, draft = [], JpegImageFile.draft

    def note_size(image: JpegImageFile, *args):
        draft(image, *args)
        sizes.append(image.size)

    monkeypatch.setattr(JpegImageFile, "draft", note_size)
    ours, full = (Picture(data).resized_crop(box, side, reduce) for reduce in (True, False))
    reduced = (-(-4 * WIDTH // shrink), -(-4 * HEIGHT // shrink))
    assert sizes == ([reduced] if shrink > 1 else [])
    cut = Image.fromarray(decode_with_pillow(data)[101:501, 203:536])
    theirs = np.asarray(cut.resize((side, side), Image.BILINEAR))
    assert np.abs(full.astype(int) - theirs).max() <= 1
    error = np.square(ours.astype(float) - full).mean()
    assert bool(error) == (shrink > 1)
    assert error < 6.5  # edges rounded to entire reduced pixels would give 20 to 100


@pytest.mark.parametrize(("height", "width"), [(64, 64), (33, 77), (HEIGHT, 40), (300, 400)])
@pytest.mark.parametrize("bicubic", [False, True])
def test_exact_resize_equals_torchvision(height, width, bicubic):
    how = v2.InterpolationMode.BICUBIC if bicubic else v2.InterpolationMode.BILINEAR
    theirs = np.asarray(v2.Resize((height, width), how)(PHOTO))
    assert np.array_equal(resize_exactly(np.asarray(PHOTO), height, width, bicubic), theirs)


def test_exact_resize_of_tall_image_starts_with_width():
    tall = np.random.default_rng(0).integers(0, 256, (300, 50, 3), dtype=np.uint8)
    narrow = Image.fromarray(tall).resize((20, 300), Image.BICUBIC)
    expected = np.asarray(narrow.resize((20, 120), Image.BICUBIC))
    assert np.array_equal(resize_exactly(tall, 120, 20, bicubic=True), expected)


@pytest.mark.parametrize("reduce", [False, True])
def test_bicubic_crop_equals_pillow(reduce):
    ours = Picture(encode_image(PHOTO, "PNG")).resized_crop(
        (3, 5, 60, 70), 32, reduce, bicubic=True
    )
    theirs = PHOTO.crop((5, 3, 75, 63)).resize((32, 32), Image.Resampling.BICUBIC)
    assert np.abs(ours.astype(int) - np.asarray(theirs)).max() <= 1


def test_decode_rejects_truncated_files_and_other_data():
    data = encode_image(PHOTO, quality=90)
    cut = [data[:length] for length in random.Random(0).sample(range(len(data) - 2), 60)]
    huge = bytearray(data)
    at = huge.index(b"\xff\xc0") + 5
    huge[at : at + 4] = b"\xff\xff\xff\xff"  # the size
    png = bytearray(encode_image(PHOTO, "PNG"))
    png[16:24] = (60_000).to_bytes(4, "big") * 2
    odd = [b"", b"\xff\xd8", b"no image at all", b"\x89PNG\r\n\x1a\n" + bytes(50), data[:2] * 2]
    for content in (*cut, *odd, bytes(huge), bytes(png)):
        with pytest.raises(BadImageError):
            decode_all(content)


@pytest.mark.parametrize(
    ("kind", "message"),
    parse_rows(
        """
fifo | Not a regular file
device | Not a regular file
sparse | 61,440 MiB long; the limit is
socket | cannot be read
folder | Is a directory
loop | Too many levels of symbolic links
nowhere | No such file
"""
    ),
)
def test_read_file_rejects_special_and_huge_files(kind, message, tmp_path):
    with pytest.raises(BadImageError, match=message):
        read_file(create_special_file(tmp_path / "image.jpg", kind))
    (tmp_path / "good.jpg").write_bytes(b"content")
    assert read_file(tmp_path / "good.jpg") == b"content"
