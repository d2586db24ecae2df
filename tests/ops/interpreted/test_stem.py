"""The stem's kernels against float64."""

import pytest
import torch

from resnet_recipes.ops import stem
from resnet_recipes.ops.kernels import stem as kernels
from resnet_recipes.ops.kernels import sums
from resnet_recipes.ops.norm import Norm, Saved
from tests.ops.interpreted.test_batch_norm import exactly, norm_of, off

#: Shape, tile, programs of the gradient: several tiles a program and parts of one, odd and even
#: sides, two images.
CASES = ((1, 10, 3, 3), (2, 2, 8), 2), ((1, 8, 4, 6), (4, 2, 8), 3), ((2, 8, 1, 2), (16, 8, 64), 8)


@pytest.mark.parametrize(("shape", "tile", "programs"), CASES)
def test_outputs_places_and_gradients_are_those_of_float64(shape, tile, programs, monkeypatch):
    for name, value in (("TILE", tile), ("GRADIENT_TILE", tile), ("RESIDENT", programs)):
        monkeypatch.setattr(kernels, name, value)
    torch.manual_seed(0)
    # many are equal
    x = torch.randn(shape).mul(2).round().to(memory_format=torch.channels_last)
    norm = norm_of(shape[1])
    exact_x, exact_norm, again = x.double().requires_grad_(), exactly(norm), exactly(norm)
    expected = stem.plain(exact_x, exact_norm)
    places = stem._forward(x.double(), *(t.detach() for t in again[:2]), *again[2:])[1]
    g = torch.randn(expected.shape).to(memory_format=torch.channels_last)
    (expected * g).sum().backward()

    y, winner, moments = kernels.forward(x, norm)
    saved = Saved(x, None, None, *norm[:2], moments, True)
    dx, (dweight, dbias) = kernels.backward(g, winner, saved)
    assert off(y, expected) < 2e-6
    assert torch.equal(winner, places)
    assert off(norm.running_mean, exact_norm.running_mean) < 1e-6
    assert off(norm.running_var, exact_norm.running_var) < 1e-6
    assert off(dx, exact_x.grad) < 2e-6
    assert off(dweight, exact_norm.weight.grad) < 1e-6
    assert off(dbias, exact_norm.bias.grad) < 1e-6
    assert int(sums.counters(x.device).sum()) == 0


def test_what_is_not_a_number_stays_so():
    torch.manual_seed(0)
    x = torch.randn(2, 8, 4, 3).to(memory_format=torch.channels_last)
    x[0, 1, 2, 1] = float("nan")
    norm = norm_of(8)
    inputs = [tensor.clone().requires_grad_() for tensor in (x, *norm[:2])]
    own = Norm(*inputs[1:], *(tensor.clone() for tensor in norm[2:5]), *norm[5:])
    expected = stem.plain(inputs[0], own)
    g = torch.randn(expected.shape).to(memory_format=torch.channels_last)
    y, winner, moments = kernels.forward(x, norm)
    dx, parameters = kernels.backward(g, winner, Saved(x, None, None, *norm[:2], moments, True))
    gradients = torch.autograd.grad(expected, inputs, g)
    for a, b in zip((y, dx, *parameters), (expected, *gradients), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
