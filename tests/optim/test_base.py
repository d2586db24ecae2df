"""Vectors of what an optimizer steps on."""

import pytest
import torch

from resnet_recipes.optim.base import as_stored


def conv(memory_format=torch.channels_last):
    """Return a convolution with a gradient, both in this memory format."""
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(4, 6, 3, bias=False).to(memory_format=memory_format)
    layer.weight.grad = torch.randn_like(layer.weight)
    return layer.weight


@torch.no_grad()
def test_vectors_are_the_tensors_themselves():
    weight = conv()
    state = torch.zeros_like(weight)
    for vector, tensor in zip(next(as_stored([weight], [state])), (weight, weight.grad, state), strict=True):
        assert vector.shape == (weight.numel(),)
        assert vector.is_contiguous()
        assert vector.data_ptr() == tensor.data_ptr()


@torch.no_grad()
@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_a_gradient_in_another_memory_format_is_put_in_order(memory_format):
    weight = conv()
    grad = weight.grad.clone()
    weight.grad = grad.contiguous(memory_format=memory_format)
    vector = next(as_stored([weight]))[1]
    assert torch.equal(vector, grad.permute(0, 2, 3, 1).flatten())


@torch.no_grad()
def test_a_state_in_another_memory_format_is_refused():
    weight = conv()
    with pytest.raises(RuntimeError, match="view"):
        next(as_stored([weight], [torch.zeros(weight.shape)]))
