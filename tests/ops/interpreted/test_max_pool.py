"""The max-pooling kernels against plain torch."""

import pytest
import torch

from resnet_recipes.ops import max_pool
from resnet_recipes.ops.kernels import max_pool as kernels


@pytest.mark.parametrize("shape", [(1, 8, 5, 9), (1, 70, 2, 3), (1, 16, 1, 1)])
def test_maxima_and_gradients_match_torch(shape):
    torch.manual_seed(0)
    x = torch.randn(shape).mul(2).round().to(memory_format=torch.channels_last)       # many ties
    reference = x.double().requires_grad_()
    expected = max_pool.plain(reference)
    y, winner = kernels.forward(x)
    g = torch.randn(shape).to(memory_format=torch.channels_last)
    expected.backward(g.double())
    assert torch.equal(y.double(), expected.detach())
    assert torch.equal(winner, max_pool._forward(x)[1])
    assert torch.allclose(kernels.backward(g, winner).double(), reference.grad, rtol=0, atol=1e-6)
