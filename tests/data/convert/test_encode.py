"""The encoding of single images."""

import io

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.data import native
from resnet_recipes.data.beton import JPEG, RAW
from resnet_recipes.data.convert.encode import ConvertOptions, encode
from resnet_recipes.data.images.decode import BadImageError, Picture, Pixels
from resnet_recipes.data.images.jpeg import ends_early
from tests.data.loaders import requires_decoder
from tests.shared.images import encode_image, make_noise

PIXELS = np.asarray(make_noise(8, 9).resize((90, 60)))
PICTURE = Image.fromarray(PIXELS)
DEEP = np.linspace(0, 65535, 60 * 90).astype(np.uint16).reshape(60, 90)


def make_sampled_4_4_1() -> bytes:
    """Return a JPEG with sampling factors that FFCV may not support."""
    data = encode_image(PICTURE, subsampling="4:4:4")
    at = data.index(b"\xff\xc0") + 11
    return data[:at] + b"\x14" + data[at + 1 :]


def test_encode_keeps_bytes_of_fitting_jpeg():
    original = encode_image(PICTURE, quality=97)
    for longest in (90, 500):
        options = ConvertOptions("jpg", max_resolution=longest)
        assert encode(Picture(original), 0, options) == (JPEG, 60, 90, original)


@pytest.mark.parametrize("is_built", [pytest.param(True, marks=requires_decoder), False])
def test_encode_rejects_damaged_jpeg_that_fits(is_built, monkeypatch):
    """Both decoders read all of a JPEG that is kept byte for byte."""
    if not is_built:
        monkeypatch.setattr(native, "find_decoder_fault", lambda: "was not built")
    data = encode_image(PICTURE)
    tables = data.index(b"\xff\xda") + 6  # the first channel's Huffman tables
    damaged = data[:tables] + b"\x33" + data[tables + 1 :]  # tables that do not exist
    with pytest.raises(BadImageError):
        encode(Picture(damaged), 0, ConvertOptions("jpg"))


def test_encode_stores_first_of_two_jpegs():
    two = encode_image(PICTURE) + encode_image(Image.fromarray(255 - PIXELS))
    stored = encode(Picture(two), 0, ConvertOptions("jpg"))
    assert not ends_early(stored.data)
    assert np.abs(Picture(stored.data).pixels().astype(int) - PIXELS).mean() < 10


@pytest.mark.parametrize(
    "original",
    [
        encode_image(Image.fromarray(DEEP), "PNG"),
        encode_image(PICTURE.convert("L"), "PNG"),
        encode_image(PICTURE.convert("P"), "PNG"),
        encode_image(PICTURE.convert("CMYK")),
        encode_image(PICTURE),
    ],
    ids=["16 bits", "gray", "palette", "CMYK", "JPEG"],
)
def test_beton_pixels_equal_folder_pixels(original):
    pixels = Picture(original).pixels().tobytes()
    assert encode(Picture(original), 0, ConvertOptions("raw")) == (RAW, 60, 90, pixels)


@pytest.mark.parametrize(
    "original",
    [
        encode_image(PICTURE.convert("CMYK")),
        encode_image(PICTURE, "PNG"),
        encode_image(PICTURE) + b"behind the end",
        encode_image(PICTURE.resize((600, 400))),
        make_sampled_4_4_1(),
    ],
    ids=["CMYK", "PNG", "bytes behind the end", "larger", "4:4:1"],
)
def test_encode_converts_other_formats_to_jpeg(original):
    stored = encode(Picture(original), 0, ConvertOptions("jpg", jpeg_quality=90))
    assert stored.data != original
    with Image.open(io.BytesIO(stored.data)) as image:
        assert (image.format, image.mode) == ("JPEG", "RGB")
        assert image.size == (stored.width, stored.height)
        assert max(image.size) <= 500


def test_proportion_compresses_same_images_per_seed():
    def choose_modes(seed: int, count: int) -> list[int]:
        options = ConvertOptions(compress_probability=0.3, seed=seed)
        return [encode(Pixels(PIXELS[:8, :8]), index, options).mode for index in range(count)]

    assert (
        abs(np.mean(np.array(choose_modes(4, 2000)) == JPEG) - 0.3) < 0.05
    )  # five standard deviations
    assert choose_modes(4, 20) == choose_modes(4, 20) != choose_modes(5, 20)


def test_encode_names_every_wrong_option():
    wrong = {
        "write_mode": "smart",
        "levels": 3,
        "on_bad_image": "ignore",
        "compress_probability": 2,
        "jpeg_quality": 0,
        "workers": -1,
        "max_resolution": 3,
        "val_share": 1,
    }
    keys = {problem.key for problem in ConvertOptions(**wrong).problems()}
    assert keys == wrong.keys()
    assert not [*ConvertOptions(max_resolution=None).problems()]
