"""The stem as a registered operation, which on a CPU has torch's numbers."""

import pytest
import torch

from resnet_recipes.ops import stem
from resnet_recipes.ops.norm import Norm

SIDES = ((5, 3), (4, 6), (1, 1))


def arguments(sides, dtype=torch.float64):
    """Return the arguments of a call on a small map with many values equal or below zero."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 4, *sides, generator=generator, dtype=dtype).mul(2).round()
    weight, bias, mean = torch.randn(3, 4, generator=generator, dtype=dtype)
    return [x, weight, bias, mean, weight.abs() + 0.5, torch.tensor(3), 0.1, 1e-5]


@pytest.mark.parametrize("sides", SIDES)
def test_outputs_gradients_and_statistics_are_those_of_torch(sides):
    found, expected = arguments(sides), arguments(sides)
    inputs = [[tensor.requires_grad_() for tensor in call[:3]] for call in (found, expected)]
    y, z = (
        form(call[0], Norm(*call[1:]))
        for form, call in ((stem.fused, found), (stem.plain, expected))
    )
    assert torch.allclose(y, z, rtol=1e-12)
    assert y.is_contiguous(memory_format=torch.channels_last)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(0), dtype=y.dtype)
    for a, b in zip(
        torch.autograd.grad(y, inputs[0], g), torch.autograd.grad(z, inputs[1], g), strict=True
    ):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12)
    for a, b in zip(found[3:6], expected[3:6], strict=True):
        assert torch.allclose(a, b, rtol=1e-12)


def test_registration_is_sound():
    call = arguments((4, 5), torch.float32)
    torch.library.opcheck(torch.ops.resnet_recipes.stem.default, call)
    y, winner, saved = torch.ops.resnet_recipes.stem.default(*call)
    backward = torch.ones_like(y), winner, *call[:3], saved
    torch.library.opcheck(torch.ops.resnet_recipes.stem_backward.default, backward)
