"""The crops of a batch against the rule written out for one image."""

import math

import numpy as np
import pytest

from resnet_recipes.data.crop import TrainCrop, random_crops, uniforms

SIZES = np.array([[375, 500], [500, 375], [32, 32], [20, 2000], [2000, 20], [1, 1], [333, 500]])


def crop_of_one(
    draws: np.ndarray, height: int, width: int, scale: tuple, ratio: tuple
) -> list[int]:
    """Return the crop of one image by the published loop; draws are [10, 4]."""
    for area, aspect, down, right in draws:
        target = height * width * (scale[0] + (scale[1] - scale[0]) * area)
        shape = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * aspect)
        w, h = round(math.sqrt(target * shape)), round(math.sqrt(target / shape))
        if 0 < w <= width and 0 < h <= height:
            return [int(down * (height - h + 1)), int(right * (width - w + 1)), h, w]
    w, h = width, height
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return [(height - h) // 2, (width - w) // 2, h, w]


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.35, 1.0), (1.0, 1.0)])
def test_random_crops_follow_the_published_rule(scale):
    for epoch in range(40):
        draws = uniforms(3, epoch, np.arange(len(SIZES)), 40)
        crops = random_crops(draws, SIZES, scale, (3 / 4, 4 / 3))
        expected = [
            crop_of_one(row.reshape(10, 4), *size, scale, (3 / 4, 4 / 3))
            for row, size in zip(draws, SIZES.tolist(), strict=True)
        ]
        assert crops.tolist() == expected


#: Heights and widths: any, and lines of pixels.
SOME = np.random.default_rng(0).integers(1, 600, (20_000, 2))
LINES = np.array([[1, 1], [1, 500], [500, 1], [1, 2], [2, 1]])


@pytest.mark.parametrize(
    ("sizes", "ratio"), [(SOME, (3 / 4, 4 / 3)), (LINES, (3.0, 4.0)), (LINES, (0.1, 0.3))]
)
def test_random_crops_lie_inside_the_image_and_are_not_empty(sizes, ratio):
    crops = random_crops(uniforms(0, 0, np.arange(len(sizes)), 40), sizes, (0.08, 1.0), ratio)
    assert (crops[:, :2] >= 0).all()
    assert (crops[:, 2:] > 0).all()
    assert (crops[:, :2] + crops[:, 2:] <= sizes).all()


def test_draws_depend_on_seed_epoch_and_index_alone():
    together = uniforms(7, 2, np.arange(100), 41)
    assert np.array_equal(uniforms(7, 2, np.array([63, 5]), 41), together[[63, 5]])
    assert not np.isin(uniforms(8, 2, np.arange(100), 41), together).any()
    assert not np.isin(uniforms(7, 3, np.arange(100), 41), together).any()


def test_every_copy_of_an_image_has_its_own_draws_and_the_first_keeps_the_former_ones():
    copies = np.arange(4)
    draws = uniforms(7, 2, np.full(4, 63), 41, copies)
    assert len(np.unique(draws)) == draws.size
    assert draws[0, :2].tolist() == [0.3516638536144425, 0.04862915538478085]
    crop = TrainCrop(7, (0.08, 1.0), (3 / 4, 4 / 3), flip=True)
    boxes = crop.cuts(2, np.full(4, 63), copies, np.full((4, 2), 400)).boxes
    assert len({tuple(box) for box in boxes.tolist()}) == 4
    assert len({crop.generator(2, 63, copy).integers(2**63) for copy in range(4)}) == 4
    assert crop.generator(2, 63, 0).integers(2**63) == 8101156065028769671


def test_draws_are_uniform_and_unrelated():
    draws = uniforms(0, 0, np.arange(100_000), 4)
    assert draws.min() >= 0
    assert draws.max() < 1
    # Standard errors at this size: mean 0.0009, correlation 0.003; five of them.
    assert np.abs(draws.mean(axis=0) - 0.5).max() < 0.005
    assert np.abs(np.corrcoef(draws.T) - np.eye(4)).max() < 0.016
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.016


def test_half_of_the_images_are_mirrored_and_half_are_bicubic_whether_mirrored_or_not():
    indices = np.arange(40_000)
    crop = TrainCrop(7, (0.08, 1.0), (3 / 4, 4 / 3), flip=True, interpolation="random")
    _, mirrored, bicubic = crop.cuts(0, indices, 0 * indices, np.full((len(indices), 2), 64))
    for share in (mirrored, bicubic, mirrored == bicubic):
        assert share.mean() == pytest.approx(0.5, abs=0.01)  # four standard deviations
