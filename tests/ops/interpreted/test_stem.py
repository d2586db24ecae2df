"""The stem's kernels against float64."""

import pytest
import torch

from resnet_recipes.ops import stem
from resnet_recipes.ops.kernels import batch_norm
from resnet_recipes.ops.kernels import stem as kernels
from tests.ops.interpreted.test_batch_norm import off

#: Shape, tile, programs of the gradient: several tiles a program and parts of one, odd and even
#: sides, two images.
CASES = ((1, 10, 3, 3), (2, 2, 8), 2), ((1, 8, 4, 6), (4, 2, 8), 3), ((2, 8, 1, 2), (16, 8, 64), 8)


@pytest.mark.parametrize(("shape", "tile", "programs"), CASES)
def test_outputs_places_and_gradients_are_those_of_float64(shape, tile, programs, monkeypatch):
    for name, value in (("TILE", tile), ("GRADIENT_TILE", tile), ("RESIDENT", programs)):
        monkeypatch.setattr(kernels, name, value)
    torch.manual_seed(0)
    # many are equal
    c, x = shape[1], torch.randn(shape).mul(2).round().to(memory_format=torch.channels_last)
    weight, bias, running = (
        torch.randn(c),
        torch.randn(c),
        (torch.randn(c), torch.rand(c), torch.tensor(3)),
    )
    exact = [t.double().requires_grad_() for t in (x, weight, bias)]
    exact_running = [*(tensor.double() for tensor in running[:2]), running[2].clone()]
    expected = stem.plain(*exact, *exact_running, 0.1, 1e-5)
    places = stem._forward(
        *(t.detach() for t in exact), *(t.clone() for t in exact_running), 0.1, 1e-5
    )[1]
    g = torch.randn(expected.shape).to(memory_format=torch.channels_last)
    (expected * g).sum().backward()

    y, winner, saved = kernels.forward(x, weight, bias, running, 0.1, 1e-5)
    dx, sums = kernels.backward(g, winner, x, weight, bias, saved)
    assert off(y, expected) < 2e-6
    assert torch.equal(winner, places)
    assert all(off(a, b) < 1e-6 for a, b in zip(running[:2], exact_running[:2], strict=True))
    assert off(dx, exact[0].grad) < 2e-6
    assert off(sums[0], exact[1].grad) < 1e-6
    assert off(sums[1], exact[2].grad) < 1e-6
    assert int(batch_norm.arrivals(x.device).sum()) == 0


def test_what_is_not_a_number_stays_so():
    torch.manual_seed(0)
    x = torch.randn(2, 8, 4, 3).to(memory_format=torch.channels_last)
    x[0, 1, 2, 1] = float("nan")
    weight, bias, running = (
        torch.rand(8) + 0.5,
        torch.randn(8),
        (torch.zeros(8), torch.ones(8), torch.tensor(0)),
    )
    inputs = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    expected = stem.plain(*inputs, *(tensor.clone() for tensor in running), 0.1, 1e-5)
    g = torch.randn(expected.shape).to(memory_format=torch.channels_last)
    y, winner, saved = kernels.forward(x, weight, bias, running, 0.1, 1e-5)
    dx, sums = kernels.backward(g, winner, x, weight, bias, saved)
    gradients = torch.autograd.grad(expected, inputs, g)
    for a, b in zip((y, dx, *sums), (expected, *gradients), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
