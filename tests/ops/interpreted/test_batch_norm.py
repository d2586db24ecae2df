"""The BatchNorm kernels against float64."""

import pytest
import torch

from resnet_recipes.ops import batch_norm
from resnet_recipes.ops.kernels import batch_norm as kernels
from resnet_recipes.ops.kernels import statistics, sums
from resnet_recipes.ops.norm import Epilogue, Norm, SavedTensors
from tests.shared.tables import parse_rows

#: Shape, residual, factor for each image, ReLU, programs. They cover one block of rows, and more
#: than fit into a tile; blocks of several tiles; partial tiles and vectors; tiles across images;
#: and images of one pixel.
CASES = parse_rows(
    """
2,8,3,4 | relu | 8
1,20,3,5 | add relu | 4
4,8,1,1 | drop | 8
3,8,2,3 | add drop relu | 8
2,10,3,3 | add drop relu | 8
"""
)
#: Tile sizes smaller than on a GPU, so that small maps have many tiles.
TILES = (
    (statistics, "ROWS", 8),
    (statistics, "CHANNELS", 16),
    (kernels, "ROWS", 4),
    (kernels, "CHANNELS", 16),
)


def compute_distance(actual, expected):
    return float((actual.double() - expected.detach()).norm() / expected.detach().norm())


def make_norm(channels, momentum=0.1):
    weight = torch.rand(channels) + 0.5
    bias = torch.randn(channels)
    mean = torch.randn(channels)
    var = torch.rand(channels)
    return Norm(weight, bias, mean, var, torch.tensor(3), momentum, 1e-5)


def to_float64(norm):
    """Return a float64 copy of parameters and statistics; the parameters require gradients."""
    weight, bias, mean, var, tracked, *numbers = norm
    parameters = (tensor.double().requires_grad_() for tensor in (weight, bias))
    return Norm(*parameters, mean.double(), var.double(), tracked.clone(), *numbers)


def save_tensors(x, norm, epilogue, z, moments):
    """Return the tensors that the backward pass needs."""
    output = None if epilogue.residual is None else z
    return SavedTensors(x, output, epilogue.keep, *norm[:2], moments, epilogue.relu)


@pytest.mark.parametrize(("shape", "parts", "programs"), CASES)
def test_batch_norm_kernel_matches_float64(shape, parts, programs, monkeypatch):
    shape = [*map(int, shape.split(","))]
    programs = int(programs)
    add, drop, relu = (part in parts for part in ("add", "drop", "relu"))
    for module, name in ((statistics, "RESIDENT"), (kernels, "RESIDENT")):
        monkeypatch.setattr(module, name, programs)
    monkeypatch.setattr(kernels, "RESIDENT_LARGE", programs)
    for module, name, size in TILES:
        monkeypatch.setattr(module, name, size)
    torch.manual_seed(0)
    keep = torch.arange(shape[0]).remainder(2).float() if drop else None
    x, residual = (torch.randn(shape).to(memory_format=torch.channels_last) for _ in range(2))
    x = x * 2 + 5
    norm = make_norm(shape[1])
    epilogue = Epilogue(residual if add else None, keep, relu, True)
    exact_norm = to_float64(norm)
    exact_x = x.double().requires_grad_()
    exact_residual = residual.double().requires_grad_() if add else None
    expected = batch_norm.unfused(exact_x, exact_norm, epilogue._replace(residual=exact_residual))
    g, other = (torch.randn(y.shape).to(memory_format=torch.channels_last) for y in expected)
    ((expected[0] * g).sum() + ((expected[1] * other).sum() if add else 0)).backward()

    z, moments = kernels.forward(x, norm, epilogue)
    saved = save_tensors(x, norm, epilogue, z, moments)
    dx, dresidual, (dweight, dbias) = kernels.backward(g, other if add else None, saved)
    assert compute_distance(z, expected[0]) < 1e-6
    assert compute_distance(norm.running_mean, exact_norm.running_mean) < 1e-6
    assert compute_distance(norm.running_var, exact_norm.running_var) < 1e-6
    assert int(norm.tracked) == 4
    assert compute_distance(dx, exact_x.grad) < 1e-6
    assert compute_distance(dweight, exact_norm.weight.grad) < 1e-6
    assert compute_distance(dbias, exact_norm.bias.grad) < 1e-6
    assert not add or compute_distance(dresidual, exact_residual.grad) < 1e-6
    assert int(sums.get_counters(x.device).sum()) == 0


def test_batch_norm_kernel_keeps_nan_like_torch():
    torch.manual_seed(0)
    x, residual, g, other = (
        torch.randn(2, 8, 3, 4).to(memory_format=torch.channels_last) for _ in range(4)
    )
    x[0, 1, 2, 3] = residual[1, 5, 0, 2] = float("nan")
    norm = make_norm(8)
    epilogue = Epilogue(residual, None, True, True)
    inputs = [tensor.clone().requires_grad_() for tensor in (x, *norm[:2], residual)]
    norm_copy = Norm(*inputs[1:3], *(tensor.clone() for tensor in norm[2:5]), *norm[5:])
    expected = batch_norm.unfused(inputs[0], norm_copy, epilogue._replace(residual=inputs[3]))
    gradients = torch.autograd.grad(expected, inputs, (g, other))

    z, moments = kernels.forward(x, norm, epilogue)
    saved = save_tensors(x, norm, epilogue, z, moments)
    dx, dresidual, parameters = kernels.backward(g, other, saved)
    actual = z, z, dx, *parameters, dresidual
    for a, b in zip(actual, (*expected, *gradients), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
