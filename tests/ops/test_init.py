"""Which operations a network gets."""

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from resnet_recipes import ops
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.ops import blur


def test_a_cpu_gets_torch_s_own_operations():
    assert ops.choose(torch.device("cpu"), torch.float32) == ops.Operations()


@pytest.mark.parametrize(("found", "chosen", "said"), [("", blur.fused, 0), ("no compiler", blur.plain, 1)])
def test_an_operation_with_a_fault_is_replaced_and_told(monkeypatch, found, chosen, said):
    monkeypatch.setattr(ops, "fault", lambda *_: found)
    operations = ops.choose(torch.device("cuda"), torch.bfloat16)
    assert operations.blur is chosen
    assert [found in note for note in operations.notes] == [True] * said


def test_fitting_changes_what_modules_call_and_nothing_else():
    model = resnet18(num_classes=10)
    BlurPool().modify_model(model)
    before, x = model.state_dict(), torch.randn(2, 3, 33, 33).to(memory_format=torch.channels_last)
    expected = model.eval()(x)
    ops.fit(model, ops.Operations(blur=blur.fused))
    assert {module.blur for module in model.modules() if isinstance(module, blur.Blurring)} == {blur.fused}
    assert torch.allclose(model(x), expected, atol=1e-6)
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_module_of_another_s_that_is_called_blur_is_left_alone():
    model = nn.Module()
    model.blur = nn.Identity()
    ops.fit(model, ops.Operations(blur=blur.fused))
    assert isinstance(model.blur, nn.Identity)
