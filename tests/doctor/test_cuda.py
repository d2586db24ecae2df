"""GPUs are counted as CUDA lists them, and unused GPUs and untested machines are reported."""

import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from resnet_recipes.base.errors import list_advice
from resnet_recipes.doctor import cuda
from resnet_recipes.doctor.cuda import Gpus
from tests.tables import parse_rows


@pytest.fixture(autouse=True)
def _clear_gpu_cache() -> Iterator[None]:
    cuda.find_gpus.cache_clear()
    yield
    cuda.find_gpus.cache_clear()


@pytest.fixture
def set_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def make(gpu: bool, cuda: str | None = "13.2", hip: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", hip)

    return make


@pytest.mark.parametrize(
    ("physical", "output", "expected"),
    [
        (8, "8\nNVIDIA A100\n8\n85000\n", Gpus(8, "NVIDIA A100", "bf16", 85000)),
        (8, "1\nTesla V100\n7\n", Gpus(1, "Tesla V100", "fp16")),  # MIG mode: CUDA lists one slice
        (1, "7\n", Gpus(7)),  # CUDA_VISIBLE_DEVICES lists seven slices of one GPU
        (4, "", Gpus(4)),  # without libcuda, as in tests
    ],
)
def test_gpus_are_counted_as_cuda_lists_them(
    physical, output, expected, set_visible_gpus, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: physical)  # reported by NVML
    asked = subprocess.CompletedProcess([], 0, output)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: asked)
    set_visible_gpus(False)  # torch cannot use the driver
    assert cuda.find_gpus() == Gpus()
    cuda.find_gpus.cache_clear()
    set_visible_gpus(True)
    assert cuda.find_gpus() == expected


@pytest.mark.parametrize(
    ("build", "hip", "visible", "driver", "why", "fix"),
    parse_rows(
        """
- | - | - | 13020 | is built for CPUs | reinstall torch
- | 7.1 | - | 13020 | is built for ROCm | reinstall torch
13.2 | - | '' | 13020 | CUDA_VISIBLE_DEVICES='' hides it | unset CUDA_
13.2 | - | NoDevFiles | 13020 | CUDA_VISIBLE_DEVICES='NoDevFiles' hides | unset
13.2 | - | - | - | libcuda.so.1 is missing | --gpus all
13.2 | - | - | 12080 | too old: it supports CUDA 12.8, and torch | update the driv
13.2 | - | - | 13000 | torch cannot use it | torch.cuda.init()'
"""
    ),
)
def test_unusable_gpu_is_reported_with_reason(
    build, hip, visible, driver, why, fix, set_visible_gpus, monkeypatch
):
    cells = (None if cell == "-" else cell for cell in (build, hip, visible, driver))
    build, hip, visible, driver = cells

    def load_library(name: str) -> SimpleNamespace:
        if driver is None:
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace(
            cuDriverGetVersion=lambda version: setattr(version._obj, "value", int(driver))
        )

    monkeypatch.setattr(cuda.ctypes, "CDLL", load_library)
    set_visible_gpus(False, build, hip)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible.strip("'"))
    monkeypatch.setattr(cuda, "find_sign_of_gpu", lambda: "")
    assert cuda.find_unused_gpu() is None
    monkeypatch.setattr(cuda, "find_sign_of_gpu", lambda: "nvidia-smi is installed")
    cells = cuda.find_unused_gpu()
    assert cells.level == "fix"
    assert cells.what.startswith("this machine seems to have a GPU (nvidia-smi is installed), but ")
    assert why in cells.what
    assert fix in " ".join(list_advice(cells.fix))
    set_visible_gpus(True)
    assert cuda.find_unused_gpu() is None


def test_unusable_gpu_reason_replaces_the_torch_warning(monkeypatch):
    def warn() -> bool:
        warnings.warn(
            "CUDA initialization: The NVIDIA driver is too old", UserWarning, stacklevel=2
        )
        return False

    monkeypatch.setattr(torch.cuda, "is_available", warn)
    with warnings.catch_warnings(record=True) as caught:
        assert not cuda.is_usable()
    assert caught == []


def test_mps_and_rocm_are_reported_as_untested(set_visible_gpus, monkeypatch):
    monkeypatch.setattr(cuda.sys, "platform", "linux")
    assert cuda.find_untested_machine() is None
    set_visible_gpus(False, None, "7.1")
    assert cuda.find_untested_machine() is None  # no GPU
    set_visible_gpus(True, None, "7.1")
    assert "AMD GPUs (ROCm)" in cuda.find_untested_machine().what
    monkeypatch.setattr(cuda.sys, "platform", "darwin")
    assert "Apple GPUs (mps) are not supported" in cuda.find_untested_machine().what


def test_driver_device_or_nvidia_smi_indicates_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(cuda, "DRIVER", tmp_path / "version")
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    assert cuda.find_sign_of_gpu() == "nvidia-smi is installed"
    monkeypatch.setattr(Path, "glob", lambda *_: iter([Path("/dev/nvidia0")]))
    assert cuda.find_sign_of_gpu() == "/dev/nvidia*"
    cuda.DRIVER.touch()
    assert cuda.find_sign_of_gpu() == "the NVIDIA driver is loaded"
