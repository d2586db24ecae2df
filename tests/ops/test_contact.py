"""The check of a fused operation before it is used."""

from types import SimpleNamespace

import pytest
import torch

from resnet_recipes.ops import blur
from resnet_recipes.ops.contact import fault

CPU = torch.device("cpu")


def stand_in(fused):
    """Return the blur with another fused implementation."""
    return SimpleNamespace(plain=blur.plain, fused=fused, samples=blur.samples)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_correct_operation_has_no_fault(dtype):
    assert fault(blur, CPU, dtype, CPU) == ""


def test_a_wrong_output_is_found():
    wrong = stand_in(lambda x, stride: blur.plain(x, stride) * 1.05)
    assert "differ from torch's on the CPU" in fault(wrong, CPU, torch.bfloat16, CPU)


def test_a_wrong_gradient_is_found():
    wrong = stand_in(lambda x, stride: blur.plain(x, stride) + 0.05 * (x - x.detach()).sum())
    assert "differ from torch's on the CPU" in fault(wrong, CPU, torch.bfloat16, CPU)


def test_nan_is_found():
    assert fault(
        stand_in(lambda x, stride: blur.plain(x, stride) * float("nan")), CPU, torch.float32, CPU
    )


def test_a_kernel_that_raises_is_reported_in_one_line():
    def fails(x, stride):
        raise RuntimeError("no C compiler\nsecond line")

    assert fault(stand_in(fails), CPU, torch.float32, CPU) == "RuntimeError: no C compiler"
