"""RandAugment on a batch: each image gets its own operation."""

import numpy as np
import pytest
import torch

from resnet_recipes.ops import augment
from resnet_recipes.ops.pixel_ops import PIXEL_OPS


@pytest.mark.parametrize("operation", [augment.plain, augment.fused])
def test_each_image_gets_its_own_operation_and_value(operation):
    pixels, kinds, values = next(augment.samples(torch.Generator().manual_seed(0), torch.float32))[
        1
    ]
    order = np.random.default_rng(0).permutation(len(kinds))
    found = operation(pixels, kinds[order], values[order])
    for image, kind, value, changed in zip(pixels, kinds[order], values[order], found, strict=True):
        expected = [*PIXEL_OPS.values()][kind](
            image.unsqueeze(0), torch.tensor([value], dtype=torch.float32)
        )[0]
        assert torch.equal(changed, expected)


def test_registration_passes_opcheck():
    pixels, kinds, values = next(augment.samples(torch.Generator().manual_seed(0), torch.float32))[
        1
    ]
    drawn = torch.from_numpy(np.stack([kinds, values]).astype(np.float32))
    torch.library.opcheck(torch.ops.resnet_recipes.augment.default, (pixels, drawn))
