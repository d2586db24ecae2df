"""RandAugment on a batch: each image gets its own operation."""

import numpy as np
import torch

from resnet_recipes.methods.pixel_ops import KINDS, PIXEL_OPS, augment

VALUES = {"posterize": 3, "rotate": -17, "solarize": 100, "shear_x": 0.21, "translate_y": 5}


def test_each_image_gets_its_own_operation_and_value():
    rng = np.random.default_rng(0)
    kinds = rng.permutation(np.repeat(np.arange(len(KINDS) - 1), 2))  # one operation is not drawn
    values = np.array([VALUES.get([*KINDS][kind], 1.7) for kind in kinds]) + rng.random(len(kinds))
    pixels = torch.from_numpy(rng.integers(256, size=(len(kinds), 5, 12, 3), dtype=np.uint8))
    found = augment(pixels, kinds, values)
    for image, kind, value, changed in zip(pixels, kinds, values, found, strict=True):
        operation = [*PIXEL_OPS.values()][kind]
        expected = operation(image.unsqueeze(0), torch.tensor([value], dtype=torch.float32))[0]
        assert torch.equal(changed, expected)
