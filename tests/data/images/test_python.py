"""Images of any shape padded or squashed to a square, as in timm."""

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.data.base import MEAN
from resnet_recipes.data.images.decode import Pixels
from resnet_recipes.data.images.python import crop_center


@pytest.mark.parametrize("turned", [0, 1])
def test_pad_and_squash_keep_image_edges(turned):
    pixels = np.zeros((40, 160, 3), np.uint8)
    pixels[:, :40] = pixels[:, -40:] = 255  # a quarter at each end
    image = Pixels(np.rot90(pixels, turned).copy())
    cut, padded, squashed = (
        np.rot90(crop_center(image, 32, 32, False, fit), -turned)
        for fit in ("crop", "pad", "squash")
    )
    assert not cut.any()
    for ends in (squashed, padded[12:20]):
        assert (ends[:, :7] == 255).all()
        assert (ends[:, -7:] == 255).all()
        assert not ends[:, 10:22].any()
    assert (padded[:12] == np.rint(MEAN)).all()
    assert (padded[20:] == np.rint(MEAN)).all()


def test_pad_centers_the_image_as_timm():
    white = np.full((100, 75, 3), 255, np.uint8)
    # 41 x 31: one column remains on the right
    padded = crop_center(Pixels(white), 41, 32, False, "pad")
    assert (padded[:, :31] == 255).all()
    assert (padded[:, 31] == (124, 116, 104)).all()


@pytest.mark.parametrize(("fit", "mode"), [("pad", "border"), ("squash", "squash")])
@pytest.mark.parametrize("bicubic", [False, True])
def test_pad_and_squash_equal_timm(fit, mode, bicubic):
    transforms = pytest.importorskip("timm.data")
    how = "bicubic" if bicubic else "bilinear"
    rng = np.random.default_rng(0)
    # 333 px become 166.5, 3 become 1.5; Pillow 13 resizes the height of tall images first
    sizes = [(333, 500), (3, 500), (2, 700), (500, 500)]
    sizes += [(side, int(rng.integers(side, 700))) for side in rng.integers(2, 400, 20).tolist()]
    theirs = transforms.create_transform(
        224, crop_pct=224 / 250, crop_mode=mode, interpolation=how, mean=(0.2, 0.4, 0.6)
    )
    for size in sizes:
        pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
        levels = tuple(255 * share for share in (0.2, 0.4, 0.6))
        ours = crop_center(Pixels(pixels), 250, 224, bicubic, fit, levels)
        image = Image.fromarray(pixels)
        for step in theirs.transforms[:2]:
            image = step(image)
        assert np.array_equal(ours, np.asarray(image)), size
