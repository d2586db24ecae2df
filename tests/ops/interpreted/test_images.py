"""The images kernel against plain torch in float64."""

import pytest
import torch

from resnet_recipes.ops import images
from resnet_recipes.ops.kernels import images as kernels

#: Width of the pixels, whether only some lines are chosen, whether images are mixed, and the size
#: (None: as chosen).
CASES = [
    (9, False, False, None),
    (9, True, False, None),
    (9, True, True, None),
    (180, True, True, None),
    (1, True, True, None),
    (9, False, False, (2, 5)),
    (9, True, False, (2, 7)),
    (200, True, True, (2, 180)),
    (9, False, True, (1, 1)),
    (1, True, True, (5, 3)),
]


def arguments(width, lines, partners):
    """Return uint8 [2, 3, 4, width], shift and scale, indices of lines and partners, and how many lines."""
    torch.manual_seed(0)
    pixels = torch.randint(256, (2, 4, width, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    norm = torch.stack([-torch.rand(3), torch.rand(3) / 100])
    rows = torch.tensor([0, 1, 3]) if lines else torch.arange(4)
    indices = [rows, torch.arange(width).flip(0), torch.tensor([1, 0][: 2 * partners])]
    return pixels, norm, torch.cat(indices).int() if lines or partners else None, (len(rows), width)


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize(("width", "lines", "partners", "size"), CASES)
def test_images_match_float64(width, lines, partners, size, channels):
    pixels, norm, indices, chosen = arguments(width, lines, partners)
    size = size or chosen
    expected = images.plain(
        pixels, norm.double(), indices, chosen, size, 0.3, torch.float64, channels
    )
    found = kernels.forward(pixels, norm, indices, chosen, size, 0.3, torch.float32, channels)
    assert torch.allclose(found.double(), expected, rtol=0, atol=1e-6)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_a_side_that_is_halved_averages_four_pixels():
    pixels, norm, _, chosen = arguments(8, False, False)
    found = kernels.forward(pixels, norm, None, chosen, (2, 4), 0.0, torch.float32, 3)
    image = pixels * norm[1].view(3, 1, 1) + norm[0].view(3, 1, 1)
    assert torch.allclose(found, torch.nn.functional.avg_pool2d(image, 2), rtol=0, atol=1e-6)
