"""The kernel of training crops against torch's own resizing of each image."""

import pytest
import torch

from resnet_recipes.ops import crops
from resnet_recipes.ops.kernels import crops as kernels


def images(sizes, seed):
    """Return planar images, smooth with a grain, one after the other, and where each begins."""
    generator = torch.Generator().manual_seed(seed)
    made = [
        torch.nn.functional.interpolate(
            torch.rand(1, 3, 4, 4, generator=generator) * 255, size, mode="bicubic"
        )
        .add(torch.randn(1, 3, *size, generator=generator) * 12)
        .clamp(0, 255)
        .to(torch.uint8)
        for size in sizes
    ]
    counts = torch.tensor([image.numel() for image in made])
    return torch.cat([image.flatten() for image in made]), (counts.cumsum(0) - counts).tolist()


@pytest.mark.parametrize(("side", "bicubic", "count"), [(6, 1, 4), (12, 0, 2)])
def test_crops_are_those_of_torch(side, bicubic, count):
    sizes = [(14, 9), (3, 9), (6, 6), (1, 1)][:count]
    boxes = [(2, 3, 11, 5), (0, 0, 3, 9), (0, 0, 6, 6), (0, 0, 1, 1)]
    pixels, starts = images(sizes, side)
    cuts = torch.tensor(
        [
            [start, *size, *box, number % 2, bicubic]
            for number, (start, size, box) in enumerate(
                zip(starts, sizes, boxes[:count], strict=True)
            )
        ]
    )
    apart = (
        kernels.forward(pixels, cuts, side).int() - crops.plain(pixels, cuts, side).int()
    ).abs()
    assert int(apart.max()) <= 1
    assert float(apart.float().mean()) < 0.05
