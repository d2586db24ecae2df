"""Weights cast together: the same bits, the same names, fewer operations."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.network.build import cast_together
from tests.jobs.nursery import narrow_resnet18

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)).to(
    memory_format=torch.channels_last
)


class Counted(TorchDispatchMode):
    """Count the casts of four-dimensional tensors to bfloat16 and back."""

    def __init__(self):
        super().__init__()
        self.found = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.found += function is torch.ops.aten._to_copy.default and args[0].dim() == 4
        return function(*args, **kwargs or {})


@pytest.fixture
def networks():
    """Return two networks with the same weights, one of which casts them together."""
    plain = narrow_resnet18(10).to(memory_format=torch.channels_last)
    BlurPool().modify_model(plain)
    together = copy.deepcopy(plain)
    cast_together(together, torch.bfloat16)
    return plain, together


def logits(model, dtype=torch.bfloat16):
    """Return the output of a forward pass in mixed precision."""
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        return model(IMAGES)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_outputs_and_gradients_have_the_same_bits(networks, dtype):
    outputs = []
    for model in networks:
        outputs.append(logits(model, dtype))
        outputs[-1].float().square().sum().backward()
    assert torch.equal(*outputs)
    for (name, parameter), other in zip(
        networks[1].named_parameters(), networks[0].parameters(), strict=True
    ):
        assert torch.equal(parameter.grad, other.grad), name
        assert parameter.grad.stride() == parameter.stride()


def test_no_convolution_needs_its_own_cast(networks):
    found = []
    for model in networks:
        with Counted() as casts:
            logits(model).sum().backward()
        found.append(casts.found)
    assert found[0] - found[1] == 2 * 21


def test_after_the_forward_pass_the_weights_are_parameters_again(networks):
    plain, together = networks
    logits(together)
    assert (
        together.layer1[0].conv1.weight
        is dict(together.named_parameters())["layer1.0.conv1.weight"]
    )
    assert list(together.state_dict()) == list(plain.state_dict())
    with pytest.raises(RuntimeError):
        together(torch.zeros(1, 4, 8, 8))
    assert not any("weight" in vars(module) for module in together.modules())


def test_frozen_weights_get_no_gradient(networks):
    for model in networks:
        model.layer1.requires_grad_(False)
        model.layer2[0].conv1.weight.requires_grad_(False)
    outputs = [logits(model) for model in networks]
    assert torch.equal(*outputs)
    outputs[1].sum().backward()
    assert [name for name, p in networks[1].named_parameters() if p.grad is None] == [
        name for name, p in networks[1].named_parameters() if not p.requires_grad
    ]


def test_a_copied_network_casts_its_own_weights(networks):
    twin = copy.deepcopy(networks[1])
    with torch.no_grad():
        twin.layer1[0].conv1.weight.zero_()
        assert not torch.equal(logits(twin), logits(networks[1]))
        assert torch.equal(logits(networks[0]), logits(networks[1]))


def test_a_weight_changed_in_any_way_is_cast_anew(networks):
    for model in networks:
        logits(model)
        model.layer1[0].conv1.weight.data.zero_()  # unseen by autograd, as by a fused optimizer
    assert torch.equal(logits(networks[1]), logits(networks[0]))
