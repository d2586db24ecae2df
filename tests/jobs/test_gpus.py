"""GPUs are counted as CUDA shows them, and one that torch does not see is not overlooked."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from resnet_recipes.jobs import gpus


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Count anew in each test, and after it."""
    gpus._answer.cache_clear()
    yield
    gpus._answer.cache_clear()


@pytest.fixture
def torch_sees(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that says how many GPUs torch sees, its build, and CUDA's answer."""

    def make(
        physical: int = 0, cuda: str | None = "13.2", hip: str | None = None, answer: str = ""
    ) -> None:
        asked = subprocess.CompletedProcess([], 0, answer)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: physical)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: physical > 0)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: asked)

    return make


@pytest.mark.parametrize(
    ("physical", "answer", "found"),
    [
        (0, "", 0),
        (8, "8\n", 8),
        (8, "1\n", 1),  # MIG mode: CUDA shows one slice
        (1, "7\n", 7),  # CUDA_VISIBLE_DEVICES names seven slices of one
        (4, "", 4),  # no libcuda, as in a test
    ],
)
def test_cuda_decides_how_many_gpus_there_are(physical, answer, found, torch_sees):
    torch_sees(physical, answer=answer)
    assert gpus.count() == found


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ("8\nNVIDIA A100\n8\n", ("NVIDIA A100", "bf16")),
        ("1\nTesla V100\n7\n", ("Tesla V100", "fp16")),
        ("", ("", "")),
    ],
)
def test_the_first_gpu_has_a_name_and_its_compute_type(answer, known, torch_sees):
    torch_sees(1, answer=answer)
    assert gpus.first() == known


@pytest.mark.parametrize(
    ("build", "hip", "visible", "driver", "why"),
    [
        (None, None, None, 13020, "is built for CPUs"),
        (None, "7.1", None, 13020, "is built for ROCm"),
        ("13.2", None, "", 13020, "CUDA_VISIBLE_DEVICES='' hides it"),
        ("13.2", None, None, None, "libcuda.so.1 is not found"),
        ("13.2", None, None, 12080, "too old: it supports CUDA 12.8, and this torch is built for "),
        ("13.2", None, None, 13000, "python -c 'import torch; torch.cuda.init()'"),
    ],
)
def test_a_gpu_that_torch_does_not_see_is_reported_with_the_reason(
    build, hip, visible, driver, why, torch_sees, monkeypatch
):
    def library(name: str) -> SimpleNamespace:
        if driver is None:
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace(
            cuDriverGetVersion=lambda place: setattr(place._obj, "value", driver)
        )

    monkeypatch.setattr(gpus.ctypes, "CDLL", library)
    torch_sees(0, build, hip)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(gpus, "_sign_of_a_gpu", lambda: "")
    assert gpus.unused() == ""
    monkeypatch.setattr(gpus, "_sign_of_a_gpu", lambda: "nvidia-smi is installed")
    said = (
        "NO GPU IS USED: this machine seems to have one (nvidia-smi is installed), but "
        "torch sees none; "
    )
    assert gpus.unused().startswith(said)
    assert why in gpus.unused()
    torch_sees(1)
    assert gpus.unused() == ""


def test_a_gpu_whose_driver_torch_cannot_use_is_not_counted(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)  # NVML's
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    assert (gpus.count(), gpus.first(), gpus.memory()) == (0, ("", ""), 0)


def test_a_mac_and_amds_gpus_are_said_to_be_untried(torch_sees, monkeypatch):
    assert gpus.untried() == ""
    torch_sees(0, None, "7.1")
    assert gpus.untried() == ""  # no GPU
    torch_sees(1, None, "7.1")
    assert "AMD's GPUs (ROCm)" in gpus.untried()
    monkeypatch.setattr(gpus.sys, "platform", "darwin")
    assert "a Mac's GPU (mps) cannot be used" in gpus.untried()


def test_nvidia_smi_is_a_sign_of_a_gpu(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert gpus._sign_of_a_gpu()
