"""BatchNorm with its sum and ReLU as a registered operation, which on a CPU has torch's numbers."""

import pytest
import torch
import torch._dynamo.testing
from torch import nn

from resnet_recipes.ops import batch_norm

CASES = ((False, False), (False, True), (True, True))       # with a residual, with ReLU


def arguments(add, relu, dtype=torch.float64):
    """Return the arguments of a call on a small map."""
    generator = torch.Generator().manual_seed(3)
    x, residual = torch.randn(2, 2, 4, 3, 5, generator=generator, dtype=dtype)
    weight, bias, mean = torch.randn(3, 4, generator=generator, dtype=dtype)
    running = (mean, weight.abs() + 0.5, torch.tensor(3))
    return [x * 2 + 1, weight, bias, residual if add else None, *running, 0.1, 1e-5, relu]


@pytest.mark.parametrize(("add", "relu"), CASES)
def test_numbers_and_statistics_are_those_of_torch(add, relu):
    found, expected = arguments(add, relu), arguments(add, relu)
    assert torch.allclose(batch_norm.fused(*found), batch_norm.plain(*expected), rtol=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(found[4:7], expected[4:7], strict=True))
    assert int(found[6]) == 4


@pytest.mark.parametrize(("add", "relu"), CASES)
def test_gradients_are_right(add, relu):
    x, weight, bias, residual, *rest = arguments(add, relu)
    inputs = [tensor.requires_grad_() for tensor in (x, weight, bias, residual) if tensor is not None]

    def call(x, weight, bias, residual=None):
        buffers = [tensor.clone() for tensor in rest[:3]]
        return batch_norm.fused(x, weight, bias, residual, *buffers, *rest[3:])
    assert torch.autograd.gradcheck(call, inputs)


@pytest.mark.parametrize(("add", "relu"), CASES)
def test_registration_is_sound(add, relu):
    call = arguments(add, relu, torch.float32)
    torch.library.opcheck(torch.ops.resnet_recipes.batch_norm.default, call)
    z, saved = torch.ops.resnet_recipes.batch_norm.default(*call)
    backward = (torch.ones_like(z), call[0], z if add else None, *call[1:3], saved, relu)
    torch.library.opcheck(torch.ops.resnet_recipes.batch_norm_backward.default, backward)


@pytest.mark.slow
def test_one_graph_serves_all_sizes_and_keeps_the_statistics():
    torch._dynamo.reset()
    norms = nn.BatchNorm2d(5).double(), nn.BatchNorm2d(5).double()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

    def call(operation, norm, x):
        rest = norm.running_mean, norm.running_var, norm.num_batches_tracked, 0.1, 1e-5, True
        y = operation(x, norm.weight, norm.bias, None, *rest)
        return operation(y, norm.weight, norm.bias, x, *rest).square().sum()
    compiled = torch.compile(call, backend=counter, dynamic=True, fullgraph=True)
    for side in (11, 12, 14):
        x = torch.randn(4, 5, side, side, dtype=torch.float64, requires_grad=True)
        found, expected = compiled(batch_norm.fused, norms[0], x), call(batch_norm.plain, norms[1], x)
        assert torch.allclose(torch.autograd.grad(found, x)[0], torch.autograd.grad(expected, x)[0])
    assert counter.frame_count == 1
    assert all(torch.allclose(a, b) for a, b in zip(*(norm.buffers() for norm in norms), strict=True))
