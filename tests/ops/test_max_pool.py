"""The max-pool, as a registered operation, against torch."""

import torch

from resnet_recipes.ops import max_pool
from tests.ops.cpu_operations import each_size, each_stride


@each_stride
@each_size
def test_max_pool_output_and_gradient_match_torch(size, stride):
    torch.manual_seed(1)
    x = torch.randn(2, 5, *size, dtype=torch.float64).relu()  # zeros are equal values
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    expected = max_pool.unfused(x, stride)
    actual = max_pool.fused(x, stride)
    assert torch.equal(actual, expected)
    assert actual.is_contiguous(memory_format=torch.channels_last)
    g = torch.randn_like(actual)
    gradients = [torch.autograd.grad(y, x, g)[0] for y in (expected, actual)]
    assert torch.allclose(*gradients, rtol=0, atol=1e-12)


@each_stride
def test_max_pool_registration_passes_opcheck(stride):
    x = torch.randn(2, 3, 8, 7).to(memory_format=torch.channels_last)
    y, places = torch.ops.resnet_recipes.max_pool.default(x, stride)
    torch.library.opcheck(torch.ops.resnet_recipes.max_pool.default, (x, stride))
    operation = torch.ops.resnet_recipes.max_pool_backward.default
    torch.library.opcheck(operation, (y, places, stride, 8, 7))
