"""Training crops on a device against Pillow's."""

import numpy as np
import pytest
import torch
from PIL import Image

from resnet_recipes.ops import crops

SIZES, SIDE = ((40, 31), (9, 64), (16, 16)), 16
BOXES = ((2, 3, 37, 20), (0, 0, 9, 64), (0, 0, 16, 16))


@pytest.fixture
def photos():
    """Return images, uint8 [h, w, 3], their pixels in planes, one image after the other, and where each begins."""
    rng = np.random.default_rng(0)
    made = [
        np.asarray(
            Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8)).resize(
                size[::-1], Image.BICUBIC
            )
        )
        for size in SIZES
    ]
    planar = [torch.from_numpy(image.copy()).permute(2, 0, 1).flatten() for image in made]
    return made, torch.cat(planar), np.cumsum([0, *(len(image) for image in planar[:-1])])


def cuts_of(starts, mirrored, bicubic):
    """Return what is cut out of the photos."""
    return torch.tensor(
        [
            [start, *size, *box, mirrored, bicubic]
            for start, size, box in zip(starts.tolist(), SIZES, BOXES, strict=True)
        ]
    )


@pytest.mark.parametrize("operation", [crops.plain, crops.fused])
@pytest.mark.parametrize(("mirrored", "bicubic"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_crops_are_within_a_grey_level_of_pillow(operation, mirrored, bicubic, photos):
    images, pixels, starts = photos
    found = operation(pixels, cuts_of(starts, mirrored, bicubic), SIDE)
    for image, (top, left, height, width), crop in zip(images, BOXES, found.numpy(), strict=True):
        cut = Image.fromarray(image[top : top + height, left : left + width])
        expected = np.asarray(
            cut.resize((SIDE, SIDE), Image.BICUBIC if bicubic else Image.BILINEAR)
        ).astype(int)
        assert np.abs(crop - (expected[:, ::-1] if mirrored else expected)).max() <= 1


def test_registration_is_sound(photos):
    _, pixels, starts = photos
    torch.library.opcheck(
        torch.ops.resnet_recipes.crops.default, (pixels, cuts_of(starts, 1, 0), SIDE)
    )
