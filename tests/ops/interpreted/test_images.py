"""The images kernel against plain torch in float64."""

import pytest
import torch

from resnet_recipes.ops import images
from resnet_recipes.ops.kernels import images as kernels


@pytest.mark.parametrize(("width", "lines", "partners"), [
    (9, False, False), (9, True, False), (9, True, True), (400, True, True), (1, True, True)])
def test_images_match_float64(width, lines, partners):
    torch.manual_seed(0)
    pixels = torch.randint(256, (3, 4, width, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    norm = torch.stack([-torch.rand(3), torch.rand(3) / 100])
    chosen = [torch.tensor([0, 1, 3]), torch.arange(width).flip(0)] if lines else []
    chosen += [torch.tensor([2, 0, 1])] if partners else []
    indices = torch.cat(chosen).int() if chosen else None
    height = 3 if lines else 4
    expected = images.plain(pixels, norm.double(), indices, height, width, 0.3, torch.float64)
    found = kernels.forward(pixels, norm, indices, height, width, 0.3, torch.float32)
    assert torch.allclose(found.double(), expected, rtol=0, atol=1e-6)
    assert found.is_contiguous(memory_format=torch.channels_last)
