"""The max-pool kernels against torch's."""

import pytest
import torch
import torch.nn.functional as F

from resnet_recipes.ops.kernels import maps
from resnet_recipes.ops.kernels import max_pool as kernels

#: Batch, channels, height, width: several tiles and parts of one in each direction, odd and even
#: sides, two images.
SHAPES = ((1, 8, 3, 5), (1, 70, 2, 4), (2, 8, 1, 1), (1, 8, 6, 9))
#: What is smaller than on a GPU, so that small maps have many tiles.
TILE = {"ROWS": 2, "COLUMNS": 4, "CHANNELS": 64}


def drawn(shape):
    """Return a map whose channels have, in turn, no equal values, many, zeros of a ReLU, or NaN."""
    x = torch.randn(shape)
    x[:, 1::4] = x[:, 1::4].round()
    x[:, 2::4] = x[:, 2::4].relu()
    x[:, 3::4] = x[:, 3::4].where(x[:, 3::4] <= 1, torch.nan)
    return x.to(memory_format=torch.channels_last)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_gradient_are_torchs(shape, stride, monkeypatch):
    torch.manual_seed(1)
    monkeypatch.setattr(kernels, "TILE", (*TILE.values(),))
    for name, size in TILE.items():
        monkeypatch.setattr(maps, name, size)
    x = drawn(shape).requires_grad_()
    expected = F.max_pool2d(x, 3, stride, 1)
    y, places = kernels.forward(x.detach(), stride)
    assert torch.equal(y.nan_to_num(9.0), expected.detach().nan_to_num(9.0))
    g = torch.randn(y.shape).to(memory_format=torch.channels_last)
    expected.backward(g)
    dx = kernels.backward(g, places, stride, *shape[2:])
    assert torch.allclose(dx, x.grad, rtol=0, atol=1e-6)
    for found in (y, places, dx):
        assert found.is_contiguous(memory_format=torch.channels_last)
