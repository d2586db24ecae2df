"""Max pooling as a registered operation, which matches torch on a CPU."""

import pytest
import torch

from resnet_recipes.ops import max_pool

SIDES = ((5, 3), (4, 6), (1, 1))


@pytest.mark.parametrize("sides", SIDES)
def test_maxima_and_gradients_match_torch(sides):
    found, expected = (torch.randn(2, 5, *sides, generator=torch.Generator().manual_seed(0)).round().requires_grad_()
                       for _ in range(2))
    weights = torch.randn(2, 5, *sides)
    y, z = max_pool.fused(found), max_pool.plain(expected)
    assert torch.equal(y, z)
    (y * weights).sum().backward()
    (z * weights).sum().backward()
    assert torch.allclose(found.grad, expected.grad, rtol=0, atol=1e-6)
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_other_windows_fall_back_to_torch():
    x = torch.randn(1, 2, 9, 9)
    assert torch.equal(max_pool.fused(x, 5, 2), max_pool.plain(x, 5, 2))


def test_registration_passes_opcheck():
    x = torch.randn(2, 3, 4, 5)
    torch.library.opcheck(torch.ops.resnet_recipes.max_pool.default, (x,))
    torch.library.opcheck(torch.ops.resnet_recipes.max_pool_backward.default, max_pool._forward(x))
