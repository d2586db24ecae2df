"""The BatchNorm kernels against float64."""

import pytest
import torch

from resnet_recipes.ops import batch_norm
from resnet_recipes.ops.kernels import batch_norm as kernels

#: Shape, residual, factor for each image, ReLU, blur, programs. They cover one share of rows, and
#: more than fit into a tile; shares of several tiles; partial tiles and vectors; tiles across
#: images; and images of one pixel.
CASES = (
    ((2, 8, 3, 4), False, False, True, 0, 8),
    ((1, 20, 3, 5), True, False, True, 0, 4),
    ((4, 8, 1, 1), False, True, False, 0, 8),
    ((3, 8, 2, 3), True, True, True, 0, 8),
    ((1, 8, 3, 5), False, False, True, 1, 8),
    ((2, 10, 3, 3), True, True, True, 2, 8),
    ((1, 8, 2, 4), False, False, False, 2, 8),
)
#: What is smaller than on a GPU, so that small maps have many tiles.
TILES = {"ROWS": 4, "CHANNELS": 16}


def off(found, expected):
    """Return the distance from the expected values, relative to their norm."""
    return float((found.double() - expected.detach()).norm() / expected.detach().norm())


@pytest.mark.parametrize(("shape", "add", "drop", "relu", "blur", "programs"), CASES)
def test_outputs_statistics_and_gradients_match_float64(
    shape, add, drop, relu, blur, programs, monkeypatch
):
    for name in ("RESIDENT_STATISTICS", "RESIDENT_REDUCE", "RESIDENT_LARGE_REDUCE"):
        monkeypatch.setattr(kernels, name, programs)
    for name, size in TILES.items():
        monkeypatch.setattr(kernels, name, size)
    monkeypatch.setattr(kernels.blurred, "TILE", (2, 2, 16))
    torch.manual_seed(0)
    c, keep = shape[1], torch.arange(shape[0]).remainder(2).float() if drop else None
    x, residual = (torch.randn(shape).to(memory_format=torch.channels_last) for _ in range(2))
    x, residual = x * 2 + 5, residual if add else None
    weight, bias, running = (
        torch.rand(c) + 0.5,
        torch.randn(c),
        (torch.randn(c), torch.rand(c), torch.tensor(3)),
    )
    exact = [
        None if t is None else t.double().requires_grad_() for t in (x, weight, bias, residual)
    ]
    exact_running = [*(tensor.double() for tensor in running[:2]), running[2].clone()]
    expected = batch_norm.plain(*exact, keep, *exact_running, 0.1, 1e-5, relu, blur, True)
    g, other = (torch.randn(y.shape).to(memory_format=torch.channels_last) for y in expected)
    alone = not add and blur < 2
    ((expected[0] * g).sum() + (0 if alone else (expected[1] * other).sum())).backward()
    other = None if alone else other

    z, halved, saved = kernels.forward(
        x, weight, bias, residual, keep, running, 0.1, 1e-5, relu, blur
    )
    dx, dresidual, sums = kernels.backward(
        g, other, x, z if add else None, keep, weight, bias, saved, relu, blur
    )
    assert off(z, expected[0]) < 1e-6
    assert blur < 2 or off(halved, expected[1]) < 1e-6
    assert all(off(a, b) < 1e-6 for a, b in zip(running[:2], exact_running[:2], strict=True))
    assert int(running[2]) == 4
    assert off(dx, exact[0].grad) < 1e-6
    assert off(sums[0], exact[1].grad) < 1e-6
    assert off(sums[1], exact[2].grad) < 1e-6
    assert not add or off(dresidual, exact[3].grad) < 1e-6
    assert int(kernels.arrivals(x.device).sum()) == 0


@pytest.mark.parametrize("blur", [0, 2])
def test_what_is_not_a_number_stays_so_and_passes_gradients_as_in_torch(blur):
    torch.manual_seed(0)
    x, residual, g, other = (
        torch.randn(2, 8, 3, 4).to(memory_format=torch.channels_last) for _ in range(4)
    )
    other = other[..., :2, :2].contiguous(memory_format=torch.channels_last) if blur else other
    x[0, 1, 2, 3] = residual[1, 5, 0, 2] = float("nan")
    weight, bias, running = (
        torch.rand(8) + 0.5,
        torch.randn(8),
        (torch.zeros(8), torch.ones(8), torch.tensor(0)),
    )
    inputs = [tensor.clone().requires_grad_() for tensor in (x, weight, bias, residual)]
    expected = batch_norm.plain(
        *inputs, None, *(tensor.clone() for tensor in running), 0.1, 1e-5, True, blur, True
    )
    gradients = torch.autograd.grad(expected, inputs, (g, other))

    z, halved, saved = kernels.forward(
        x, weight, bias, residual, None, running, 0.1, 1e-5, True, blur
    )
    dx, dresidual, sums = kernels.backward(g, other, x, z, None, weight, bias, saved, True, blur)
    found = z, halved if blur else z, dx, *sums, dresidual
    for a, b in zip(found, (*expected, *gradients), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
