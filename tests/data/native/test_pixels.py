"""Pixels of the native decoder against Pillow; test_property.py uses random cases."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.native import NativeDecoder
from resnet_recipes.data.native.rows import BICUBIC, BILINEAR, CENTER, CROP
from tests.data.loaders import make_rows
from tests.data.native.batch import JPEGS, Batch, decode_with_pillow
from tests.shared.images import HEIGHT, WIDTH, encode_image, make_photo

FILTERS = {BILINEAR: Image.BILINEAR, BICUBIC: Image.BICUBIC}


def make_boxes(count: int, seed: int = 0, square: int = 0) -> np.ndarray:
    """Return random boxes (left, top, width, height) in the photo, including corners and edges."""
    rng = np.random.default_rng(seed)
    most = np.array([WIDTH, HEIGHT])
    size = np.full((count, 2), square)
    if not square:
        size = np.stack([rng.integers(1, side + 1, count) for side in most], axis=1)
    place = (rng.choice([0, 0.3, 0.7, 1], (count, 2)) * (most - size)).astype(int)
    return np.concatenate([place, size], axis=1)


@pytest.mark.parametrize("options", JPEGS.values(), ids=JPEGS.keys())
def test_unresized_crop_is_bit_identical_to_full_decode(decoder, options):
    data = encode_image(make_photo(), quality=85, **options)
    whole = decode_with_pillow(data)
    cut = make_boxes(40, square=33)
    pixels = Batch([data] * 40, 33, box=cut).decode(decoder)
    for image, (left, top, _, _) in zip(pixels, cut, strict=True):
        assert np.array_equal(image, whole[top : top + 33, left : left + 33])


@pytest.mark.parametrize("chosen", FILTERS)
@pytest.mark.parametrize("side", [8, 61, 176])
def test_resize_is_within_one_level_of_pillow(decoder, chosen, side):
    raw = np.asarray(make_photo())
    cut = make_boxes(30, seed=side)
    how = FILTERS[chosen]
    batch = Batch([raw] * 30, side, box=cut, size=(HEIGHT, WIDTH), raw=True, filter=chosen)
    for image, (left, top, width, height) in zip(batch.decode(decoder), cut, strict=True):
        theirs = Image.fromarray(raw[top : top + height, left : left + width])
        # rows first: the order inside `resize` depends on the Pillow version
        theirs = theirs.resize((side, height), how).resize((side, side), how)
        assert np.abs(image - np.asarray(theirs).astype(int)).max() <= 1


def make_random_pixels(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Return noise, uint8 [height, width, 3]; every second image is black and white."""
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return pixels if rng.random() < 0.5 else (pixels > 127) * np.uint8(255)


def crop_with_pillow(pixels: np.ndarray, resize: int, side: int, how: int) -> np.ndarray:
    """Return the center of an image whose shorter edge is `resize`, as in timm and torchvision."""
    height, width = pixels.shape[:2]
    high, wide = (int(resize * length / min(height, width)) for length in (height, width))
    # width first: for tall images the order depends on the Pillow version
    image = Image.fromarray(pixels).resize((wide, height), how).resize((wide, high), how)
    top = round((high - side) / 2)
    left = round((wide - side) / 2)
    return np.asarray(image)[top : top + side, left : left + side]


@pytest.mark.parametrize("chosen", FILTERS)
@pytest.mark.parametrize("scalar", [False, True])
def test_evaluation_crop_of_noise_equals_pillow(require_decoder, chosen, scalar):
    rng = np.random.default_rng(chosen)
    sizes = [(1, 1), (1, 40), (300, 7), (1500, 1200), (224, 224), (37, 33)]
    sizes += rng.integers(1, 300, (60, 2)).tolist()
    with closing(NativeDecoder(1, scalar=scalar)) as decoder:
        for height, width in sizes:
            raw = make_random_pixels(rng, height, width)
            resize = int(rng.integers(1, 280))
            side = int(rng.integers(1, resize + 1))
            how = {"geometry": CENTER, "resize": resize, "filter": chosen}
            batch = Batch([raw], side, size=(height, width), raw=True, **how)
            expected = crop_with_pillow(raw, resize, side, FILTERS[chosen])
            assert np.array_equal(batch.decode(decoder)[0], expected), (height, width, how, side)


@pytest.mark.parametrize("chosen", FILTERS)
@pytest.mark.parametrize("resize", [40, 146, 400])
def test_evaluation_crop_of_jpegs_equals_pillow(decoder, chosen, resize):
    files = [encode_image(make_photo(), **options) for options in JPEGS.values()]
    files += [encode_image(make_photo(0, *size).convert("L")) for size in ((211, 150), (149, 151))]
    batch = Batch(files, 33, geometry=CENTER, resize=resize, filter=chosen, full_size=True)
    for image, data in zip(batch.decode(decoder), files, strict=True):
        assert np.array_equal(
            image, crop_with_pillow(decode_with_pillow(data), resize, 33, FILTERS[chosen])
        )


def test_scalar_instructions_are_bit_identical(decoder):
    for side, chosen in ((8, BILINEAR), (37, BICUBIC), (176, BILINEAR)):
        best, plain = (
            Batch([encode_image(make_photo())] * 20, side, box=make_boxes(20), filter=chosen)
            for _ in range(2)
        )
        with closing(NativeDecoder(1, scalar=True)) as scalar:
            assert np.array_equal(best.decode(decoder), plain.decode(scalar))


def test_fractional_box_resizes_as_pillow(decoder):
    raw = np.asarray(make_photo())
    box = np.array([[0, 0, WIDTH / 2, HEIGHT / 3], [3.5, 7.25, 150.5, 100.25]])
    batch = Batch([raw] * 2, 32, box=box, size=(HEIGHT, WIDTH), raw=True)
    for image, (left, top, width, height) in zip(batch.decode(decoder), box, strict=True):
        theirs = Image.fromarray(raw).resize(
            (32, 32), Image.BILINEAR, box=(left, top, left + width, top + height)
        )
        inner = slice(2, -2)  # Pillow reads pixels beyond the box
        assert np.abs(image - np.asarray(theirs).astype(int))[inner, inner].max() <= 2


def test_random_crops_equal_python_loader(decoder):
    sizes = np.array([[150, 211], [211, 150], [32, 32], [20, 700], [700, 20], [1, 1], [3, 2]])
    images = [encode_image(make_photo(0, *size)) for size in sizes.tolist()]
    crop = TrainCrop(5, DataConfig())
    indices = np.arange(len(sizes))
    for epoch in range(30):
        batch = Batch(images, 16, geometry=CROP)
        numbers, _ = crop.sample_attempts(make_rows(epoch, indices))
        batch.rows["draws"] = numbers.ctypes.data + indices * numbers.strides[0]
        batch.decode(decoder)
        assert np.array_equal(batch.rows["size"], sizes)
        boxes, _ = crop.sample_boxes(make_rows(epoch, indices), sizes)
        assert np.array_equal(batch.rows["box"][:, [1, 0, 3, 2]], boxes)


def test_decoder_decodes_photographs_as_pillow(decoder, photographs):
    decoded = 0
    for path in photographs:
        data = Path(path).read_bytes()
        whole = decode_with_pillow(data)
        height, width = whole.shape[:2]
        side = min(50, height, width)
        left = width - side
        top = (height - side) // 2
        batch = Batch([data], side, box=(left, top, side, side))
        if not batch.fill(decoder).any():
            assert np.array_equal(batch.pixels[0], whole[top:, left:][:side, :side]), path
            decoded += 1
    assert decoded > len(photographs) / 2  # Pillow decodes the others


def test_reduced_decode_keeps_twice_the_output(decoder):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    jpeg = encode_image(Image.fromarray(noise), quality=95, subsampling="4:4:4")
    errors = {}
    for side in (33, 40, 63):
        picture = Image.fromarray(decode_with_pillow(jpeg)).resize((side, side), Image.BILINEAR)
        batch = Batch([jpeg], side, box=(0, 0, 64, 64))
        apart = batch.decode(decoder)[0].astype(int) - np.asarray(picture)
        errors[side] = np.abs(apart).max()
    assert max(errors.values()) <= 1, errors
    whole, reduced = (
        Batch([jpeg], 32, box=(0, 0, 64, 64), full_size=flag) for flag in (True, False)
    )
    assert not np.array_equal(whole.decode(decoder), reduced.decode(decoder))
