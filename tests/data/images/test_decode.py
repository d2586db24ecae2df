"""Pictures: the right pixels of every kind of file, and an error message for the others."""

import io
import os
import random
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from torchvision.transforms import v2

from resnet_recipes.data.images.decode import MAX_BYTES, BadImageError, Picture, read_file, resized
from resnet_recipes.data.images.jpeg import passes
from resnet_recipes.data.images.kinds import FORMATS
from tests.data.native.batch import HEIGHT, JPEGS, WIDTH, by_pillow, encoded
from tests.data.native.batch import photo as drawn


@pytest.fixture
def photo() -> Image.Image:
    """Smooth colours with some noise, of odd size."""
    return drawn()


def whole(data: bytes) -> np.ndarray:
    """Return all pixels at full resolution."""
    picture = Picture(data)
    return picture.crop(0, 0, picture.height, picture.width)


def as_rgb(grey: np.ndarray) -> np.ndarray:
    """Return [H, W] values as [H, W, 3]."""
    return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=2)


def with_sampling(data: bytes, factors: int) -> bytes:
    """Return a JPEG that declares other sampling factors for its first component: 0x14 is 4:4:1."""
    at = data.index(b"\xff\xc0") + 11
    return data[:at] + bytes([factors]) + data[at + 1 :]


def psnr(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the peak signal-to-noise ratio in decibels."""
    return 10 * np.log10(255**2 / np.square(ours.astype(float) - theirs).mean())


@pytest.mark.parametrize("options", JPEGS.values(), ids=JPEGS.keys())
def test_every_jpeg_has_pillows_pixels_wherever_it_is_cut(photo, options):
    data = encoded(photo, quality=85, **options)
    expected = by_pillow(data)
    assert np.array_equal(whole(data), expected)
    for top, left, height, width in (
        (0, 0, 1, 1),
        (3, 5, 40, 50),
        (31, 0, 17, WIDTH),
        (70, 100, 48, 111),
        (100, 0, 50, 9),
    ):
        assert np.array_equal(
            Picture(data).crop(top, left, height, width),
            expected[top : top + height, left : left + width],
        )


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_grey_and_cmyk_jpegs_become_rgb_as_pillow_converts_them(photo, mode):
    data = encoded(photo.convert(mode), quality=90)
    assert np.array_equal(whole(data), by_pillow(data))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_a_png_is_read_whatever_its_name_and_mode(photo, mode):
    data = encoded(photo.convert(mode), "PNG")
    assert np.array_equal(whole(data), by_pillow(data))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bit_grey_keeps_its_upper_eight_bits(kind):
    deep = (np.arange(40 * 50, dtype=np.uint16) * 32).reshape(40, 50)
    assert np.array_equal(whole(encoded(Image.fromarray(deep), kind)), as_rgb(deep >> 8))


def test_32_bit_grey_is_read_where_its_white_is_known():
    values = np.arange(12).reshape(3, 4)
    assert np.array_equal(
        whole(encoded(Image.fromarray(20 * values.astype(np.int32)), "TIFF")), as_rgb(20 * values)
    )
    assert np.array_equal(
        whole(encoded(Image.fromarray((values / 255).astype(np.float32)), "TIFF")), as_rgb(values)
    )
    for unknown in (
        values.astype(np.int32) << 24,
        1e4 * values.astype(np.float32),
        np.full((3, 4), np.nan, np.float32),
    ):
        with pytest.raises(
            BadImageError, match=r"32-bit values from .*; save it with 8 or 16 bits"
        ):
            whole(encoded(Image.fromarray(unknown), "TIFF"))


def test_a_jpeg_of_4_1_1_turned_by_90_degrees_is_read_by_pillow(photo):
    data = with_sampling(encoded(photo.resize((64, 64)), subsampling="4:4:4"), 0x14)
    assert np.array_equal(whole(data), by_pillow(data))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("odd"), OSError("bad")])
def test_whatever_pillow_raises_the_image_is_named_as_bad(photo, monkeypatch, error):
    def failing(*args, **options):
        raise error

    monkeypatch.setattr("PIL.Image.Image.convert", failing)
    for damaged in (encoded(photo), encoded(photo, "PNG")):
        with pytest.raises(BadImageError, match="cannot be decoded: "):
            whole(damaged)


def test_a_jpeg_of_thousands_of_scans_is_refused_unread(photo):
    data = encoded(photo, progressive=True)
    last = data.rindex(b"\xff\xda")
    assert whole(data[:last] + 80 * data[last:-2] + data[-2:]).shape == (HEIGHT, WIDTH, 3)
    hidden = data[:2] + b"\xff\xd0" + bytes(2) + data[2:]  # markers without a length hide no frame
    for begin in (data, hidden):
        with pytest.raises(BadImageError, match="more than 100 JPEG scans"):
            Picture(begin[:last] + 2000 * data[last:-2] + data[-2:])


def announcing(data: bytes, height: int, width: int) -> bytes:
    """Return a progressive JPEG whose header announces another size."""
    at = data.rindex(b"\xff\xc2") + 5
    return data[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + data[at + 4 :]


def test_a_progressive_jpeg_of_too_many_pixels_times_scans_is_refused_with_both_figures(photo):
    data = encoded(photo, progressive=True)
    with pytest.raises(BadImageError, match=r"62 million pixels in 10 scans; the limit is 26 mil"):
        Picture(announcing(data, 7900, 7850))
    assert Picture(announcing(data, 5000, 5000)).height == 5000
    last = data.rindex(b"\xff\xda")
    more = data[:last] + 10 * data[last:-2] + data[-2:]
    with pytest.raises(BadImageError, match=r"25 million pixels in 19 scans; the limit is 13 mil"):
        Picture(announcing(more, 5000, 5000))
    few = data[: data.index(b"\xff\xda", data.index(b"\xff\xda") + 2)] + b"\xff\xd9"
    with pytest.raises(BadImageError, match=r"30 million pixels in 1 scans; the limit is 26 mil"):
        Picture(announcing(few, 6000, 5000))


def test_only_scans_of_the_image_itself_are_counted(photo):
    thumbnail = encoded(photo.resize((40, 30)), progressive=True)
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + thumbnail
    data = announcing(encoded(photo, progressive=True, exif=exif), 5000, 5000)
    assert Picture(data + thumbnail).height == 5000
    plain = encoded(photo, exif=exif) + thumbnail
    assert passes(plain) == 0
    assert passes(data + thumbnail) == 10


@pytest.mark.parametrize("kind", ["WEBP", "BMP", "TIFF", "PPM"])
def test_other_formats_are_read_through_pillow(photo, kind):
    data = encoded(photo, kind)
    assert np.array_equal(whole(data), by_pillow(data))


@pytest.mark.parametrize(
    "kind", [kind for kind in ("GIF", "WEBP", "PNG", "AVIF") if kind in FORMATS]
)
def test_the_first_frame_of_an_animation_is_read(photo, kind):
    black = Image.new(photo.mode, photo.size)
    data = encoded(photo, kind, save_all=True, append_images=[black, black], quality=90)
    # GIF has 256 colours; the others are black
    assert np.abs(whole(data).astype(int) - np.asarray(photo)).mean() < 15
    assert np.array_equal(whole(data), by_pillow(data))


@pytest.mark.skipif("HEIF" not in FORMATS, reason="pillow-heif is not installed")
def test_heic_is_read_where_pillow_heif_is_installed(photo):
    assert psnr(whole(encoded(photo, "HEIF", quality=90)), np.asarray(photo)) > 25


def test_the_exif_orientation_is_ignored(photo):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(photo, exif=exif)
    assert whole(data).shape == (HEIGHT, WIDTH, 3)


@pytest.mark.parametrize(("side", "shrink"), [(200, 1), (100, 2), (64, 4), (45, 4), (20, 8)])
def test_a_reduced_jpeg_is_cut_at_exact_fractions_of_its_pixels(photo, side, shrink, monkeypatch):
    data = encoded(photo.resize((WIDTH * 4, HEIGHT * 4), Image.BICUBIC), quality=95)
    box = (101, 203, 400, 333)
    sizes, draft = [], JpegImageFile.draft

    def noted(image: JpegImageFile, *args):
        draft(image, *args)
        sizes.append(image.size)

    monkeypatch.setattr(JpegImageFile, "draft", noted)
    ours = Picture(data).resized_crop(box, side)
    reduced = (-(-4 * WIDTH // shrink), -(-4 * HEIGHT // shrink))
    assert sizes == ([reduced] if shrink > 1 else [])
    assert ours.shape == (side, side, 3)
    full = Picture(data).resized_crop(box, side, reduce=False)
    theirs = np.asarray(
        Image.fromarray(by_pillow(data)[101:501, 203:536]).resize((side, side), Image.BILINEAR)
    )
    assert np.abs(full.astype(int) - theirs).max() <= 1
    if shrink > 1:
        assert psnr(ours, full) > 40  # edges rounded to whole reduced pixels: 28 to 35


@pytest.mark.parametrize(("height", "width"), [(64, 64), (33, 77), (HEIGHT, 40), (300, 400)])
def test_resizing_is_within_one_of_pillows_and_of_torchvisions(photo, height, width):
    ours = resized(np.asarray(photo).copy(), height, width)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    ours = ours[0].permute(1, 2, 0).numpy().astype(int)
    theirs = np.asarray(v2.Resize((height, width), antialias=True)(photo))
    assert np.abs(ours - theirs).max() <= 1


def test_cut_off_jpegs_are_refused_wherever_they_were_cut(photo):
    data = encoded(photo, quality=90)
    for length in random.Random(0).sample(range(len(data) - 2), 60):
        with pytest.raises(BadImageError):
            whole(data[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8",
        b"not an image at all",
        b"\x89PNG\r\n\x1a\n" + bytes(50),
        b"\xff\xd8\xff\xd9",
    ],
)
def test_data_that_are_not_an_image_are_refused(data):
    with pytest.raises(BadImageError):
        whole(data)


def test_only_regular_files_of_a_sane_size_are_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo.jpg")
    with open(tmp_path / "tail.jpg", "wb") as file:
        file.truncate(40 << 30)  # sparse
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.jpg"))
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    for path, said in (
        (tmp_path / "fifo.jpg", "Not a regular file"),
        (Path("/dev/zero"), "Not a regular file"),
        (tmp_path / "tail.jpg", f"40,960 MiB long; the limit is {MAX_BYTES >> 20} MiB"),
        (tmp_path / "socket.jpg", "cannot be read"),
        (tmp_path / "folder.jpg", "Is a directory"),
        (tmp_path / "loop.jpg", "Too many levels of symbolic links"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(BadImageError, match=said):
            read_file(path)
    (tmp_path / "good.jpg").write_bytes(b"content")
    assert read_file(tmp_path / "good.jpg") == b"content"


def test_huge_dimensions_are_refused_before_anything_is_allocated(photo):
    data = bytearray(encoded(photo))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(BadImageError, match="pixels"):
        Picture(bytes(data))
    png = bytearray(encoded(photo, "PNG"))
    png[16:24] = (60_000).to_bytes(4, "big") * 2
    with pytest.raises(BadImageError):
        Picture(bytes(png))


def test_real_photographs_have_pillows_pixels(photographs):
    for path in photographs:
        data = path.read_bytes()
        expected = by_pillow(data)
        height, width = expected.shape[0] // 2, expected.shape[1] // 2
        assert np.array_equal(whole(data), expected)
        assert np.array_equal(
            Picture(data).crop(10, 7, height, width), expected[10 : 10 + height, 7 : 7 + width]
        )


@pytest.mark.parametrize("reduce", [False, True])
def test_bicubic_crops_are_pillows(photo, reduce):
    data = io.BytesIO()
    photo.save(data, "PNG")
    ours = Picture(data.getvalue()).resized_crop((3, 5, 60, 70), 32, reduce, bicubic=True)
    theirs = photo.convert("RGB").crop((5, 3, 75, 63)).resize((32, 32), Image.Resampling.BICUBIC)
    assert np.abs(ours.astype(int) - np.asarray(theirs)).max() <= 1
