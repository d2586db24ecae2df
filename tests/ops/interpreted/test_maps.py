"""The blur and max-pool kernels against float64 and torch."""

import pytest
import torch
import torch.nn.functional as F

from resnet_recipes.ops import blur
from resnet_recipes.ops.kernels import blur as blurs
from resnet_recipes.ops.kernels import maps
from resnet_recipes.ops.kernels import max_pool as pools

#: Batch, channels, height, width: several complete and partial tiles in each direction, odd and
#: even sizes, two images.
SHAPES = ((1, 8, 3, 5), (1, 70, 2, 4), (2, 8, 1, 1), (1, 8, 6, 9))
#: A tile smaller than on a GPU, so that small maps have many tiles.
TILE = {"ROWS": 2, "COLUMNS": 4, "CHANNELS": 64}


@pytest.fixture(autouse=True)
def _use_small_tiles(monkeypatch):
    """Use several tiles even for small images."""
    for kernels in (blurs, pools):
        monkeypatch.setattr(kernels, "TILE", (*TILE.values(),))
    for name, size in TILE.items():
        monkeypatch.setattr(maps, name, size)


def make_random_map(shape):
    return torch.randn(shape).to(memory_format=torch.channels_last)


def check_memory(*feature_maps):
    assert all(map_.is_contiguous(memory_format=torch.channels_last) for map_ in feature_maps)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_blur_and_gradient_match_float64(shape, stride):
    x = make_random_map(shape)
    reference = x.double().requires_grad_()
    expected = blur.unfused(reference, stride)
    y = blurs.forward(x, stride)
    g = make_random_map(y.shape)
    (expected * g).sum().backward()
    dx = blurs.forward(g, 1) if stride == 1 else blurs.backward(g, *shape[2:])
    assert torch.allclose(y.double(), expected.detach(), rtol=0, atol=1e-6)
    assert torch.allclose(dx.double(), reference.grad, rtol=0, atol=1e-6)
    check_memory(y, dx)


def test_blur_of_float16_is_rounded_once():
    torch.manual_seed(0)
    x = make_random_map((1, 8, 4, 6)).half()
    assert torch.equal(blurs.forward(x, 2), blur.unfused(x.double(), 2).half())


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_max_pool_and_gradient_match_torch(shape, stride):
    """The channels have, in turn, no equal values, many equal values, zeros of a ReLU, and NaN."""
    torch.manual_seed(1)
    x = make_random_map(shape)
    x[:, 1::4] = x[:, 1::4].round()
    x[:, 2::4] = x[:, 2::4].relu()
    x[:, 3::4] = x[:, 3::4].where(x[:, 3::4] <= 1, torch.nan)
    expected = F.max_pool2d(x.requires_grad_(), 3, stride, 1)
    y, places = pools.forward(x.detach(), stride)
    assert torch.equal(y.nan_to_num(9.0), expected.detach().nan_to_num(9.0))
    g = make_random_map(y.shape)
    expected.backward(g)
    dx = pools.backward(g, places, stride, *shape[2:])
    assert torch.allclose(dx, x.grad, rtol=0, atol=1e-6)
    check_memory(y, places, dx)
