"""The blur kernels against a float64 convolution."""

import pytest
import torch

from resnet_recipes.ops import blur
from resnet_recipes.ops.kernels import blur as kernels
from resnet_recipes.ops.kernels import maps

#: Batch, channels, height, width: several tiles and parts of one in each direction, odd and even
#: sides, two images.
SHAPES = ((1, 8, 3, 5), (1, 70, 2, 4), (2, 8, 1, 1))
#: What is smaller than on a GPU, so that small maps have many tiles.
TILE = {"ROWS": 2, "COLUMNS": 4, "CHANNELS": 64}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_gradient_match_float64(shape, stride, monkeypatch):
    monkeypatch.setattr(kernels, "TILE", (*TILE.values(),))
    for name, size in TILE.items():
        monkeypatch.setattr(maps, name, size)
    x = torch.randn(shape).to(memory_format=torch.channels_last)
    reference = x.double().requires_grad_()
    expected = blur.plain(reference, stride)
    y = kernels.forward(x, stride)
    g = torch.randn(y.shape).to(memory_format=torch.channels_last)
    (expected * g).sum().backward()
    dx = kernels.forward(g, 1) if stride == 1 else kernels.backward(g, *shape[2:])
    assert torch.allclose(y.double(), expected.detach(), rtol=0, atol=1e-6)
    assert torch.allclose(dx.double(), reference.grad, rtol=0, atol=1e-6)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert dx.is_contiguous(memory_format=torch.channels_last)


def test_half_precision_is_rounded_once():
    torch.manual_seed(0)
    x = torch.randn(1, 8, 4, 6).half().to(memory_format=torch.channels_last)
    assert torch.equal(kernels.forward(x, 2), blur.plain(x.double(), 2).half())
