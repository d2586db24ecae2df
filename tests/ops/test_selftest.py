"""The check of a fused operation before its first use."""

import sys
from types import SimpleNamespace

import pytest
import torch

import tests.ops.cpu_operations  # noqa: F401
from resnet_recipes.ops import batch_norm, blur, selftest
from resnet_recipes.ops.selftest import find_mismatch

CPU = torch.device("cpu")


def make_stand_in(fused, operation=blur):
    return SimpleNamespace(
        unfused=operation.unfused, fused=fused, make_samples=operation.make_samples
    )


def round_once(x, norm, epilogue):
    """Compute a BatchNorm in float32 and round outputs and gradients, as the kernels do."""
    if epilogue.residual is not None:
        epilogue = epilogue._replace(residual=epilogue.residual.float())
    outputs = batch_norm.unfused(x.float(), norm, epilogue)
    if isinstance(outputs, tuple):
        return tuple(output.to(x.dtype) for output in outputs)
    return outputs.to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("operation", [blur, make_stand_in(round_once, batch_norm)])
def test_correct_operation_passes_selftest(operation, dtype):
    assert find_mismatch(operation, CPU, dtype, CPU) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, stride: blur.unfused(x, stride) * 1.05,
        lambda x, stride: blur.unfused(x, stride) * float("nan"),
        lambda x, stride: blur.unfused(x, stride) + 0.05 * (x - x.detach()).sum(),  # gradient
    ],
)
def test_wrong_output_or_gradient_is_detected(wrong):
    assert "differ from torch on the CPU by " in find_mismatch(
        make_stand_in(wrong), CPU, torch.bfloat16, CPU
    )


def test_selftest_requires_accurate_float32_statistics():
    def compute_wrongly(x, norm, epilogue):
        y = round_once(x, norm, epilogue)
        norm.running_var.data.mul_(1.001)  # less than the rounding error of bfloat16
        return y

    mismatch = find_mismatch(make_stand_in(compute_wrongly, batch_norm), CPU, torch.bfloat16, CPU)
    assert mismatch.startswith("its torch.float32 results differ from torch on the CPU by 1.0e-03")


def test_selftest_requires_an_exact_batch_count():
    def compute_wrongly(x, norm, epilogue):
        y = batch_norm.fused(x, norm, epilogue)
        norm.tracked.add_(1)
        return y

    mismatch = find_mismatch(make_stand_in(compute_wrongly, batch_norm), CPU, torch.float32, CPU)
    assert mismatch.startswith("its torch.int64 results differ")


PYTHON = "python{}.{}".format(*sys.version_info)


def fail(x, stride):
    """Fail like an operation whose compilation fails."""
    raise RuntimeError("Command '['gcc', ...]' failed.\nsecond line")


@pytest.fixture
def folder_without_headers(monkeypatch, tmp_path):
    """A machine with a compiler but without the Python headers."""
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setattr(selftest.sysconfig, "get_path", lambda name: str(tmp_path))
    return tmp_path


def test_missing_headers_are_named_with_package(folder_without_headers):
    mismatch = find_mismatch(make_stand_in(fail), CPU, torch.float32, CPU)
    commands = f"apt install {PYTHON}-dev or dnf install {PYTHON}-devel"
    assert mismatch == f"Python.h is missing: {commands}"
    (folder_without_headers / "Python.h").touch()
    mismatch = find_mismatch(make_stand_in(fail), CPU, torch.float32, CPU)
    assert mismatch == "RuntimeError: Command '['gcc', ...]' failed."  # on one line


def test_missing_compiler_is_named_first(folder_without_headers, monkeypatch):
    monkeypatch.delenv("CC")
    monkeypatch.setattr(selftest.shutil, "which", lambda name: None)
    assert selftest.find_missing_package().startswith("a C compiler is missing: ")
