"""RandAugment's kernels against the same operations in plain torch."""

import numpy as np
import pytest
import torch

from resnet_recipes.ops import augment
from resnet_recipes.ops.kernels import augment as kernels

VALUES = {
    "posterize": (1, 4),
    "rotate": (0, 30, -7),
    "solarize": (256, 100, 0),
    "shear_x": (0.29, -0.2),
    "shear_y": (0.29, -0.1),
    "translate_x": (7, -3, 0),
    "translate_y": (2, -4),
    "color": (0.1, 9.3),
    "contrast": (0.1, 9.3),
    "brightness": (0.1, 7.0),
    "sharpness": (0.1, 9.3),
    "autocontrast": (1,),
    "equalize": (1,),
}


@pytest.mark.parametrize(
    ("name", "sides"), [*((name, (3, 9)) for name in VALUES), ("rotate", (4, 4))]
)
def test_pixels_match_torch(name, sides):
    count = len(VALUES[name])
    ramp = torch.arange(sides[0]).view(-1, 1, 1) * 6
    grain = torch.randint(90, (count, *sides, 3), generator=torch.Generator().manual_seed(0))
    pixels = torch.cat(
        [(ramp + grain + 30).to(torch.uint8), torch.full((1, *sides, 3), 77, dtype=torch.uint8)]
    )
    kinds, values = (
        np.full(count + 1, augment.KINDS[name]),
        np.array([*VALUES[name], VALUES[name][0]]),
    )
    expected = augment.plain(pixels, kinds, values)
    found = kernels.forward(pixels, torch.from_numpy(np.stack([kinds, values]).astype(np.float32)))
    apart = (found.int() - expected.int()).abs()
    assert int(apart.max()) <= (1 if name == "rotate" else 0)
    assert float((apart > 0).double().mean()) < 1e-3
