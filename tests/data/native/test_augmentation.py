"""Operations of the native decoder against Pillow, sampled by the methods."""

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.data.native.rows import OPERATIONS, put_operations
from resnet_recipes.methods.color_jitter import ColorJitter
from resnet_recipes.methods.flips import Flips
from resnet_recipes.methods.image_ops import IMAGE_OPS, RANDAUGMENT_OPS, make_native_operation
from resnet_recipes.methods.randaugment import RandAugment
from resnet_recipes.methods.trivial_augment import TrivialAugment
from tests.data.native.batch import Batch
from tests.shared.images import make_photo

COUNT = 24


def make_images(side: int) -> list[np.ndarray]:
    """Return squares of all contrasts, and two of one color."""
    rng = np.random.default_rng(side)
    drawn = [
        (np.asarray(make_photo(seed, side, side)) * rng.uniform(0.2, 1)).astype(np.uint8)
        for seed in range(COUNT - 2)
    ]
    return [*drawn, np.zeros((side, side, 3), np.uint8), np.full((side, side, 3), 200, np.uint8)]


def augment(decoder, sources: list[np.ndarray], sampled: list) -> np.ndarray:
    side = sources[0].shape[0]
    batch = Batch(sources, side, raw=True, size=side, box=(0, 0, side, side))
    encoded = put_operations(batch.rows, sampled)
    assert len(encoded) == sum(map(len, sampled))
    return batch.decode(decoder)


@pytest.mark.parametrize("side", [8, 61, 176])
@pytest.mark.parametrize("name", RANDAUGMENT_OPS)
def test_randaugment_operations_equal_pillow(decoder, name, side):
    sources = make_images(side)
    rng = np.random.default_rng(1)
    values = [RandAugment().sample_value(name, side, rng) for _ in range(COUNT)]
    pixels = augment(
        decoder, sources, [[make_native_operation(name, value, side)] for value in values]
    )
    theirs = [
        np.asarray(IMAGE_OPS[name](Image.fromarray(source), value))
        for source, value in zip(sources, values, strict=True)
    ]
    assert np.array_equal(pixels, theirs)


def test_hue_equals_pillow_for_colors_and_steps(decoder):
    rng = np.random.default_rng(0)
    sources = list(rng.integers(0, 256, (64, 64, 64, 3), dtype=np.uint8))
    sources += list(rng.integers(0, 4, (8, 64, 64, 3), dtype=np.uint8))  # dark: few saturations
    turns = rng.integers(0, 256, len(sources))
    turns[:3] = 0, 1, 255
    pixels = augment(
        decoder, sources, [[make_native_operation("hue", float(turn), 64)] for turn in turns]
    )
    for image, source, turn in zip(pixels, sources, turns, strict=True):
        theirs = IMAGE_OPS["hue"](Image.fromarray(source), turn)
        assert np.array_equal(image, np.asarray(theirs)), turn


@pytest.mark.parametrize(
    "method",
    [
        RandAugment(depth=2),
        RandAugment(augmentation_set="original"),
        TrivialAugment(),
        Flips(),
        ColorJitter(hue=0.5),
    ],
    ids=["randaugment", "original", "trivial_augment", "flips", "color_jitter"],
)
def test_augmentation_is_equal_without_the_decoder(decoder, method):
    operations = method.augment_image()
    side = 48
    sources = make_images(side) * 12
    pixels = augment(
        decoder,
        sources,
        [
            operations.sample_operations(side, np.random.default_rng(seed))
            for seed in range(len(sources))
        ],
    )
    for seed, (ours, source) in enumerate(zip(pixels, sources, strict=True)):
        assert np.array_equal(
            ours, np.asarray(operations(Image.fromarray(source), np.random.default_rng(seed)))
        ), seed


def test_augmentation_without_operations_keeps_the_image(decoder):
    sources = make_images(16)
    assert np.array_equal(augment(decoder, sources, [[] for _ in sources]), sources)


def test_every_native_operation_has_an_image_operation():
    used = {make_native_operation(name, 1.0, 16)[0] for name in IMAGE_OPS}
    assert used == set(OPERATIONS)
