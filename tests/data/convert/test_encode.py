"""How one image is stored."""

import io

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.data.beton.file import JPEG, RAW
from resnet_recipes.data.convert.encode import ConvertOptions, encode
from resnet_recipes.data.images.decode import Picture
from resnet_recipes.data.images.jpeg import ends_early

PIXELS = np.asarray(
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 9, 3), np.uint8)).resize((90, 60))
)


def file(image: Image.Image, kind: str = "JPEG", **options) -> bytes:
    """Return an image as the bytes of a file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def sampled_4_4_1(data: bytes) -> bytes:
    """Return a JPEG that declares other sampling factors for its first component."""
    at = data.index(b"\xff\xc0") + 11
    return data[:at] + b"\x14" + data[at + 1 :]


def test_raw_keeps_every_pixel():
    stored = encode(file(Image.fromarray(PIXELS), "PNG"), 0, ConvertOptions("raw"))
    assert stored[:3] == (RAW, 60, 90)
    assert stored.data == PIXELS.tobytes()


def test_a_sound_jpeg_that_fits_is_kept_byte_for_byte():
    original = file(Image.fromarray(PIXELS), quality=97)
    assert encode(original, 0, ConvertOptions("jpg")) == (JPEG, 60, 90, original)


def test_of_a_jpeg_with_another_behind_it_only_the_first_is_stored():
    first, second = map(file, map(Image.fromarray, (PIXELS, 255 - PIXELS)))
    stored = encode(first + second, 0, ConvertOptions("jpg"))
    assert not ends_early(stored.data)
    kept = Picture(stored.data).crop(0, 0, 60, 90).astype(int)
    assert np.abs(kept - PIXELS).mean() < 10


@pytest.mark.parametrize(
    "original",
    [
        pytest.param(
            file(Image.fromarray(np.arange(60 * 90, dtype=np.uint16).reshape(60, 90) * 12), "PNG"),
            id="16 bits",
        ),
        pytest.param(file(Image.fromarray(PIXELS).convert("L"), "PNG"), id="grey"),
        pytest.param(file(Image.fromarray(PIXELS).convert("P"), "PNG"), id="palette"),
        pytest.param(file(Image.fromarray(PIXELS).convert("CMYK")), id="CMYK"),
        pytest.param(file(Image.fromarray(PIXELS)), id="JPEG"),
    ],
)
def test_a_file_has_the_same_pixels_in_a_beton_as_in_a_folder(original):
    picture = Picture(original)
    assert encode(original, 0, ConvertOptions("raw")).data == picture.crop(0, 0, 60, 90).tobytes()


def test_sixteen_bits_a_pixel_keep_their_upper_eight():
    ramp = np.linspace(0, 65535, 60 * 90).astype(np.uint16).reshape(60, 90)
    for kind in ("PNG", "TIFF"):
        stored = np.frombuffer(
            encode(file(Image.fromarray(ramp), kind), 0, ConvertOptions("raw")).data, np.uint8
        )
        assert np.array_equal(stored.reshape(60, 90, 3)[..., 0], ramp >> 8)


@pytest.mark.parametrize(
    "original",
    [
        pytest.param(file(Image.fromarray(PIXELS).convert("CMYK")), id="CMYK"),
        pytest.param(file(Image.fromarray(PIXELS), "PNG"), id="PNG"),
        pytest.param(file(Image.fromarray(PIXELS)) + b"behind the end", id="bytes behind the end"),
        pytest.param(file(Image.fromarray(PIXELS).resize((600, 400))), id="larger"),
        pytest.param(
            sampled_4_4_1(file(Image.fromarray(PIXELS), subsampling="4:4:4")),
            id="4:4:1, which FFCV may not read",
        ),
    ],
)
def test_anything_else_is_encoded_again(original):
    stored = encode(original, 0, ConvertOptions("jpg", jpeg_quality=90))
    assert stored.data != original
    with Image.open(io.BytesIO(stored.data)) as image:
        assert image.format == "JPEG"
        assert image.mode == "RGB"
        assert image.size == (stored.width, stored.height)
        assert max(image.size) <= 500


@pytest.mark.parametrize(
    ("old", "new"),
    [((800, 600), (500, 375)), ((4288, 2848), (500, 332)), ((375, 500),) * 2, ((999, 1), (500, 1))],
)
def test_the_longer_side_is_limited_and_sides_are_rounded_down(old, new):
    stored = encode(np.zeros((old[1], old[0], 3), np.uint8), 0, ConvertOptions("raw"))
    assert (stored.width, stored.height) == new


def test_shrinking_is_the_mean_over_the_covered_area():
    stored = encode(PIXELS, 0, ConvertOptions("raw", max_resolution=70))
    image = np.frombuffer(stored.data, np.uint8).reshape(stored.height, stored.width, 3)
    assert image.shape[:2] == (46, 70)
    fine = np.repeat(np.repeat(PIXELS, 46, axis=0), 70, axis=1)  # a common multiple of both grids
    exact = fine.reshape(46, 60, 70, 90, 3).mean(axis=(1, 3))
    assert np.abs(exact - image).max() <= 0.51  # rounded to whole numbers


def test_proportion_compresses_that_share_and_always_the_same_images():
    options = ConvertOptions("proportion", compress_probability=0.3, seed=4)
    modes = [encode(PIXELS[:8, :8], index, options).mode for index in range(2000)]
    assert abs(np.mean(np.array(modes) == JPEG) - 0.3) < 0.05  # five standard deviations
    assert modes[1234] == encode(PIXELS[:8, :8], 1234, options).mode


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no image",
        file(Image.fromarray(PIXELS))[:400],
        file(Image.fromarray(PIXELS), "PNG")[:300],
    ],
)
@pytest.mark.parametrize("mode", ["raw", "jpg"])
def test_what_cannot_be_decoded_is_an_error(data, mode):
    with pytest.raises((OSError, ValueError)):
        encode(data, 0, ConvertOptions(mode))


def test_every_wrong_option_is_named():
    wrong = ConvertOptions(
        "smart",
        max_resolution=3,
        compress_probability=2,
        jpeg_quality=0,
        on_bad_image="ignore",
        workers=-1,
    )
    assert [problem.key for problem in wrong.problems()] == [
        "write_mode",
        "max_resolution",
        "compress_probability",
        "jpeg_quality",
        "on_bad_image",
        "workers",
    ]
    assert not list(ConvertOptions().problems())


def test_which_images_become_jpeg_is_drawn_by_the_seed():
    image = file(Image.fromarray(PIXELS), "PNG")
    modes = {
        tuple(encode(image, index, ConvertOptions(seed=seed)).mode for index in range(20))
        for seed in (0, 0, 1)
    }
    assert len(modes) == 2
