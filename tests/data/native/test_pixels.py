"""The native engine's pixels against Pillow's, torchvision's and full decoding."""

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import v2

from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.native.engine import Engine
from resnet_recipes.data.native.rows import BICUBIC, BILINEAR, BOX, CENTRE, CROP
from tests.data.native.batch import HEIGHT, JPEGS, WIDTH, Batch, by_pillow, encoded, photo

FILTERS = {BILINEAR: Image.BILINEAR, BICUBIC: Image.BICUBIC}


def resized(image: np.ndarray, size: tuple[int, int], how: int) -> np.ndarray:
    """Return Pillow's resize to (width, height), rows first.

    The order of its own `resize` depends on the version.
    """
    return np.asarray(
        Image.fromarray(image).resize((size[0], image.shape[0]), how).resize(size, how)
    ).astype(int)


def boxes(count: int, seed: int = 0, square: int | None = None) -> np.ndarray:
    """Return random boxes (left, top, width, height) inside the photo; corners and edges too."""
    rng = np.random.default_rng(seed)
    size = np.full((count, 2), square)
    if square is None:
        size = np.stack(
            [rng.integers(1, WIDTH + 1, count), rng.integers(1, HEIGHT + 1, count)], axis=1
        )
    place = (rng.choice([0, 0.3, 0.7, 1], (count, 2)) * (np.array([WIDTH, HEIGHT]) - size)).astype(
        int
    )
    return np.concatenate([place, size], axis=1)


@pytest.mark.parametrize("options", JPEGS.values(), ids=JPEGS.keys())
def test_a_crop_that_is_not_resized_is_full_decoding_to_the_bit(engine, options):
    data = encoded(photo(), quality=85, **options)
    whole, cut = by_pillow(data), boxes(40, square=33)
    batch = Batch([data] * 40, 33, box=cut)
    assert not batch.filled(engine).any()
    for image, (left, top, _, _) in zip(batch.pixels, cut, strict=True):
        assert np.array_equal(image, whole[top : top + 33, left : left + 33])


def test_grey_jpegs_become_rgb(engine):
    data = encoded(photo().convert("L"), quality=90)
    batch = Batch([data], 100, box=(7, 9, 100, 100))
    assert not batch.filled(engine).any()
    assert np.array_equal(batch.pixels[0], by_pillow(data)[9:109, 7:107])


@pytest.mark.parametrize("chosen", FILTERS)
@pytest.mark.parametrize("side", [8, 61, 176])
def test_resizing_is_within_one_grey_level_of_pillows(engine, chosen, side):
    raw, cut = np.asarray(photo()), boxes(30, seed=side)
    batch = Batch([raw] * 30, side, box=cut, size=(HEIGHT, WIDTH), raw=True, filter=chosen)
    assert not batch.filled(engine).any()
    for image, (left, top, width, height) in zip(batch.pixels, cut, strict=True):
        theirs = resized(
            raw[top : top + height, left : left + width], (side, side), FILTERS[chosen]
        )
        assert np.abs(image - theirs).max() <= 1


def test_plain_instructions_give_the_same_bits(engine):
    for side, chosen in ((8, BILINEAR), (37, BICUBIC), (176, BILINEAR)):
        best, plain = (
            Batch([encoded(photo())] * 20, side, box=boxes(20), filter=chosen) for _ in range(2)
        )
        best.filled(engine)
        with Engine(1, scalar=True) as scalar:
            plain.filled(scalar)
        assert np.array_equal(best.pixels, plain.pixels)


def test_a_mirrored_row_is_the_row_mirrored(engine):
    plain, mirrored = (
        Batch([encoded(photo())] * 20, 45, box=boxes(20), mirror=mirror) for mirror in (False, True)
    )
    plain.filled(engine)
    mirrored.filled(engine)
    assert np.array_equal(plain.pixels[:, :, ::-1], mirrored.pixels)


def test_a_box_with_fractions_is_resized_as_pillow_resizes_it(engine):
    raw = np.asarray(photo())
    box = np.array([[0, 0, WIDTH / 2, HEIGHT / 3], [3.5, 7.25, 150.5, 100.25]])
    batch = Batch([raw] * 2, 32, box=box, size=(HEIGHT, WIDTH), raw=True)
    assert not batch.filled(engine).any()
    for image, (left, top, width, height) in zip(batch.pixels, box, strict=True):
        theirs = Image.fromarray(raw).resize(
            (32, 32), Image.BILINEAR, box=(left, top, left + width, top + height)
        )
        inner = slice(2, -2)  # Pillow looks at pixels beyond the box, the engine does not
        assert np.abs(image - np.asarray(theirs).astype(int))[inner, inner].max() <= 2


def test_evaluation_is_torchvisions_resize_and_centre_crop(engine):
    transform = v2.Compose([v2.Resize(64), v2.CenterCrop(56)])
    for height, width in ((150, 211), (211, 150), (64, 64), (65, 400), (57, 61)):
        data = encoded(photo(1, height, width), quality=95, subsampling="4:4:4")
        batch = Batch([data], 56, geometry=CENTRE, resize=64, whole=True)
        assert not batch.filled(engine).any()
        assert (
            np.abs(
                batch.pixels[0]
                - np.asarray(transform(Image.fromarray(by_pillow(data)))).astype(int)
            ).max()
            <= 1
        )


def test_random_crops_are_those_of_the_python_loader(engine):
    sizes = np.array([[150, 211], [211, 150], [32, 32], [20, 700], [700, 20], [1, 1], [3, 2]])
    images = [encoded(photo(0, *size)) for size in sizes.tolist()]
    crop, indices = TrainCrop(5, (0.08, 1.0), (0.75, 4 / 3), flip=True), np.arange(len(sizes))
    for epoch in range(30):
        batch = Batch(images, 16, geometry=CROP)
        draws, _ = crop.attempts(epoch, indices, 0 * indices)
        batch.rows["draws"] = draws.ctypes.data + indices * draws.strides[0]
        assert not batch.filled(engine).any()
        assert np.array_equal(batch.rows["size"], sizes)
        boxes = crop.cuts(epoch, indices, 0 * indices, sizes).boxes
        assert np.array_equal(batch.rows["box"][:, [1, 0, 3, 2]], boxes)


@pytest.mark.parametrize("shrink", [2, 4, 8])
def test_large_crops_are_decoded_smaller_and_stay_close_to_full_decoding(engine, shrink):
    data = encoded(photo(2, 640, 800).resize((1600, 1280), Image.BICUBIC), quality=92)
    box = (101, 53, 1400, 1200)
    small, full = (Batch([data], 1200 // shrink, box=box, whole=whole) for whole in (False, True))
    small.filled(engine)
    full.filled(engine)
    error = np.square(small.pixels.astype(float) - full.pixels).mean()
    assert 10 * math.log10(255**2 / error) > 38
    assert not np.array_equal(small.pixels, full.pixels)


def test_real_photographs_are_decoded_as_pillow_decodes_them(engine, photographs):
    for path in photographs:
        data = Path(path).read_bytes()
        whole = by_pillow(data)
        side = min(50, *whole.shape[:2])
        batch = Batch(
            [data],
            side,
            geometry=BOX,
            box=(whole.shape[1] - side, (whole.shape[0] - side) // 2, side, side),
        )
        if not batch.filled(engine).any():
            top, left = (whole.shape[0] - side) // 2, whole.shape[1] - side
            assert np.array_equal(batch.pixels[0], whole[top : top + side, left : left + side]), (
                path
            )
