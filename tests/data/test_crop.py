"""The crops of a batch against torchvision and TensorFlow rules, written out for one image."""

import math

import numpy as np
import pytest

from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.crop import (
    TENSORFLOW_ATTEMPTS,
    TrainCrop,
    compute_tensorflow_crops,
    compute_torchvision_crops,
    sample_uniforms,
)
from tests.data.loaders import ONE_RANK, make_rows

SIZES = np.array([[500, 375], [32, 32], [20, 2000], [2000, 20], [1, 1], [333, 500], [3, 2]])
SIZES = np.concatenate([SIZES, np.random.default_rng(0).integers(1, 600, (90, 2))])
WIDE, NARROW = (3 / 4, 4 / 3), (0.75, 1.33)  # aspect ratios


def crop_by_torchvision_loop(
    uniforms: np.ndarray, size: list[int], scale: tuple, ratio: tuple
) -> list[int]:
    """Return the crop of one image by the torchvision loop; samples are [10, 4]."""
    height, width = size
    for area, aspect, down, right in uniforms:
        target = height * width * (scale[0] + (scale[1] - scale[0]) * area)
        shape = math.exp(math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * aspect)
        w = round(math.sqrt(target * shape))
        h = round(math.sqrt(target / shape))
        if 0 < w <= width and 0 < h <= height:
            return [int(down * (height - h + 1)), int(right * (width - w + 1)), h, w]
    w, h = width, height
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return [(height - h) // 2, (width - w) // 2, h, w]


def crop_by_tensorflow_loop(
    uniforms: np.ndarray, size: list[int], scale: tuple, ratio: tuple
) -> list[int]:
    """Return the crop of one image by the steps of GenerateRandomCrop and its caller.

    Samples are [100, 4].
    """
    tall, wide = size
    least, most = (share * tall * wide for share in scale)
    for shape, length, down, right in uniforms:
        aspect = ratio[0] + (ratio[1] - ratio[0]) * shape
        height = round(math.sqrt(least / aspect))
        highest = round(math.sqrt(most / aspect))
        if round(highest * aspect) > wide:
            highest = int((wide + 0.5 - 1e-7) / aspect)
            if round(highest * aspect) > wide:
                highest -= 1
        highest = min(highest, tall)
        height = min(height, highest)
        height += int(length * (highest - height + 1))
        if height * round(height * aspect) < least:
            height += 1
        if height * round(height * aspect) > most:
            height -= 1
        width = round(height * aspect)
        is_possible = least <= height * width <= most and 0 < width <= wide and 0 < height <= tall
        if is_possible and height * width / (tall * wide) >= 0.1:
            return [int(down * (tall - height)), int(right * (wide - width)), height, width]
    return [0, 0, tall, wide]


@pytest.mark.parametrize(
    ("scale", "ratio", "crops", "crop"),
    [
        *(
            (scale, WIDE, compute_torchvision_crops, crop_by_torchvision_loop)
            for scale in ((0.08, 1), (0.35, 1), (1, 1))
        ),
        *(
            (scale, NARROW, compute_tensorflow_crops, crop_by_tensorflow_loop)
            for scale in ((0.05, 1), (0.35, 0.5), (1, 1))
        ),
    ],
)
def test_crops_follow_torchvision_and_tensorflow_rules(scale, ratio, crops, crop):
    tries = 10 if crops is compute_torchvision_crops else TENSORFLOW_ATTEMPTS
    for epoch in range(3):
        uniforms = sample_uniforms(3, epoch, np.arange(len(SIZES)), 4 * tries)
        pairs = zip(uniforms.reshape(-1, tries, 4), SIZES.tolist(), strict=True)
        expected = [crop(row, size, scale, ratio) for row, size in pairs]
        assert crops(uniforms, SIZES, scale, ratio).tolist() == expected


@pytest.mark.parametrize("ratio", [(3.0, 4.0), (0.1, 0.3)])
def test_crops_of_thin_images_are_not_empty(ratio):
    lines = np.array([[1, 1], [1, 500], [500, 1], [1, 2], [2, 1]])
    crops = compute_torchvision_crops(
        sample_uniforms(0, 0, np.arange(5), 40), lines, (0.08, 1.0), ratio
    )
    assert (crops[:, :2] >= 0).all()
    assert (crops[:, 2:] > 0).all()
    assert (crops[:, :2] + crops[:, 2:] <= lines).all()


def test_sampled_uniforms_depend_on_seed_epoch_and_index():
    together = sample_uniforms(7, 2, np.arange(100), 41)
    assert np.array_equal(sample_uniforms(7, 2, np.array([63, 5]), 41), together[[63, 5]])
    assert not np.isin(sample_uniforms(8, 2, np.arange(100), 41), together).any()
    assert not np.isin(sample_uniforms(7, 3, np.arange(100), 41), together).any()


def test_repeated_copies_have_their_own_random_numbers():
    copies = np.arange(4)
    uniforms = sample_uniforms(7, 2, np.full(4, 63), 41, copies)
    assert len(np.unique(uniforms)) == uniforms.size
    assert uniforms[0, :2].tolist() == [0.3516638536144425, 0.04862915538478085]
    crop = TrainCrop(7, DataConfig())
    rows = make_rows(2, [63] * 4, copies)
    boxes, _ = crop.sample_boxes(rows, np.full((4, 2), 400))
    assert len({tuple(box) for box in boxes.tolist()}) == 4
    assert len({crop.generator(rows, row).integers(2**63) for row in range(4)}) == 4
    assert crop.generator(rows, 0).integers(2**63) == 8101156065028769671


def test_sampled_uniforms_are_uniform_and_uncorrelated():
    uniforms = sample_uniforms(0, 0, np.arange(100_000), 4)
    assert uniforms.min() >= 0
    assert uniforms.max() < 1
    # five standard errors at this size; those of the mean are 0.0009, of the correlation 0.003
    assert np.abs(uniforms.mean(axis=0) - 0.5).max() < 0.005
    assert np.abs(np.corrcoef(uniforms.T) - np.eye(4)).max() < 0.016
    assert abs(np.corrcoef(uniforms[:-1, 0], uniforms[1:, 0])[0, 1]) < 0.016


def test_crop_flip_is_independent_of_interpolation():
    indices = np.arange(40_000)
    crop = TrainCrop(7, DataConfig(interpolation="random"))
    rows = make_rows(0, indices)
    _, flipped = crop.sample_boxes(rows, np.full((len(indices), 2), 64))
    bicubic = crop.choose_bicubic(rows)
    for share in (flipped, bicubic, flipped == bicubic):
        assert share.mean() == pytest.approx(0.5, abs=0.01)  # four standard deviations


def test_data_seed_replaces_the_run_seed():
    for seed, expected in ((11, 11), ("auto", 5)):
        crop = TrainCrop.of(DataConfig(root="/", seed=seed), ONE_RANK)
        numbers, _ = crop.sample_attempts(make_rows(0, [0, 1, 2]))
        assert (
            numbers[:, 2].tolist() == sample_uniforms(expected, 0, np.arange(3), 3)[:, 2].tolist()
        )
