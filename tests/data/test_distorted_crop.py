"""TensorFlow's crop against its loop written out for one image."""

import math

import numpy as np
import pytest

from resnet_recipes.data.crop import TRIES, distorted_crops, uniforms

SIZES = np.array(
    [[375, 500], [500, 375], [32, 32], [20, 2000], [2000, 20], [1, 1], [333, 500], [3, 2]]
)


def crop_of_one(draws: np.ndarray, tall: int, wide: int, scale: tuple, ratio: tuple) -> list[int]:
    """Return the crop of one image by the steps of GenerateRandomCrop and its caller.

    Draws are [100, 4].
    """
    least, most = (share * tall * wide for share in scale)
    for shape, length, down, right in draws:
        aspect = ratio[0] + (ratio[1] - ratio[0]) * shape
        height, highest = round(math.sqrt(least / aspect)), round(math.sqrt(most / aspect))
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


@pytest.mark.parametrize("scale", [(0.05, 1.0), (0.35, 0.5), (1.0, 1.0)])
def test_crops_follow_the_published_steps(scale):
    for epoch in range(20):
        draws = uniforms(3, epoch, np.arange(len(SIZES)), 4 * TRIES)
        expected = [
            crop_of_one(row.reshape(TRIES, 4), *size, scale, (0.75, 1.33))
            for row, size in zip(draws, SIZES.tolist(), strict=True)
        ]
        assert distorted_crops(draws, SIZES, scale, (0.75, 1.33)).tolist() == expected


def test_crops_lie_inside_the_image_and_cover_a_tenth_of_it():
    indices = np.arange(2000)
    sizes = np.random.default_rng(0).integers(1, 600, (len(indices), 2))
    crops = distorted_crops(uniforms(0, 0, indices, 4 * TRIES), sizes, (0.05, 1.0), (0.75, 1.33))
    assert (crops[:, :2] >= 0).all()
    assert (crops[:, :2] + crops[:, 2:] <= sizes).all()
    assert (crops[:, 2:].prod(axis=1) >= 0.1 * sizes.prod(axis=1)).all()


def test_heights_are_uniform_where_torchvision_draws_uniform_areas():
    sizes = np.full((20_000, 2), 1000)
    crops = distorted_crops(
        uniforms(0, 0, np.arange(len(sizes)), 4 * TRIES), sizes, (0.05, 1.0), (0.9999, 1.0001)
    )
    lowest = math.sqrt(0.1) * 1000  # 317 pixels: what covers a tenth of the image
    shares = np.histogram(crops[:, 2], bins=10, range=(lowest, 1000))[0] / len(crops)
    assert np.abs(shares - 0.1).max() < 0.011  # five standard errors of a tenth


def test_an_image_too_long_for_any_crop_is_taken_whole():
    assert distorted_crops(
        uniforms(0, 0, np.arange(1), 4 * TRIES), SIZES[3:4], (0.05, 1.0), (0.75, 1.33)
    ).tolist() == [[0, 0, 20, 2000]]
