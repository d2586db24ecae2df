"""The BatchNorm kernels against float64."""

import pytest
import torch

from resnet_recipes.ops import batch_norm
from resnet_recipes.ops.kernels import batch_norm as kernels

#: Shape, residual, factor for each image, ReLU, blur, programs. They cover many shares of rows and one, partial tiles
#: and vectors, and images of one pixel.
CASES = (
    ((2, 8, 5, 9), False, False, True, 0, 8), ((2, 70, 3, 7), True, False, True, 0, 8),
    ((3, 16, 6, 7), False, False, False, 0, 2), ((4, 8, 1, 1), True, True, True, 0, 8),
    ((3, 8, 4, 9), True, True, True, 0, 8), ((1, 8, 3, 5), False, False, True, 1, 8),
    ((2, 10, 3, 5), True, True, True, 2, 8), ((3, 8, 2, 3), False, False, False, 2, 8),
)


def off(found, expected):
    """Return the distance from the expected values, relative to their norm."""
    return float((found.double() - expected.detach()).norm() / expected.detach().norm())


@pytest.mark.parametrize(("shape", "add", "drop", "relu", "blur", "programs"), CASES)
def test_outputs_statistics_and_gradients_match_float64(shape, add, drop, relu, blur, programs, monkeypatch):
    monkeypatch.setattr(kernels, "RESIDENT_STATISTICS", programs)
    monkeypatch.setattr(kernels, "RESIDENT_REDUCE", programs)
    monkeypatch.setattr(kernels, "RESIDENT_HALVED", programs)
    monkeypatch.setattr(kernels.blurred, "TILE", (2, 2, 16))
    torch.manual_seed(0)
    c, keep = shape[1], torch.arange(shape[0]).remainder(2).float() if drop else None
    x, residual = (torch.randn(shape).to(memory_format=torch.channels_last) for _ in range(2))
    x, residual = x * 2 + 5, residual if add else None
    weight, bias, running = torch.rand(c) + 0.5, torch.randn(c), (torch.randn(c), torch.rand(c), torch.tensor(3))
    exact = [None if t is None else t.double().requires_grad_() for t in (x, weight, bias, residual)]
    exact_running = [*(tensor.double() for tensor in running[:2]), running[2].clone()]
    expected = batch_norm.plain(*exact, keep, *exact_running, 0.1, 1e-5, relu, blur)
    g, other = (torch.randn(y.shape).to(memory_format=torch.channels_last) for y in expected)
    alone = not add and blur < 2
    torch.autograd.backward(expected, [g.double(), torch.zeros_like(other).double() if alone else other.double()])
    other = None if alone else other

    z, halved, saved = kernels.forward(x, weight, bias, residual, keep, running, 0.1, 1e-5, relu, blur)
    arguments = g, other, x, z if add else None, keep, weight, bias, saved, relu, blur
    dx, dresidual, sums = kernels.backward(*arguments)
    assert off(z, expected[0]) < 1e-6
    assert blur < 2 or off(halved, expected[1]) < 1e-6
    assert all(off(a, b) < 1e-6 for a, b in zip(running[:2], exact_running[:2], strict=True))
    assert int(running[2]) == 4
    assert off(dx, exact[0].grad) < 1e-6
    assert off(sums[0], exact[1].grad) < 1e-6
    assert off(sums[1], exact[2].grad) < 1e-6
    assert not add or off(dresidual, exact[3].grad) < 1e-6
    assert torch.equal(kernels.backward(*arguments)[0], dx)
    assert int(kernels.arrivals(x.device).sum()) == 0
