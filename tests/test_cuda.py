"""GPUs are counted as CUDA lists them."""

import shutil
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from resnet_recipes import cuda
from resnet_recipes.cuda import VisibleGpus


@pytest.fixture(autouse=True)
def _clear_gpu_cache() -> Iterator[None]:
    cuda.find_gpus.cache_clear()
    yield
    cuda.find_gpus.cache_clear()


@pytest.mark.parametrize(
    ("physical", "output", "expected"),
    [
        (8, "8\nNVIDIA A100\n8\n85000\n", VisibleGpus(8, "NVIDIA A100", "bf16", 85000)),
        # MIG mode: CUDA lists one slice
        (8, "1\nTesla V100\n7\n", VisibleGpus(1, "Tesla V100", "fp16")),
        (1, "7\n", VisibleGpus(7)),  # CUDA_VISIBLE_DEVICES lists seven slices of one GPU
        (4, "", VisibleGpus(4)),  # without libcuda, as in tests
    ],
)
def test_gpus_are_counted_as_cuda_lists_them(physical, output, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: physical)  # reported by NVML
    asked = subprocess.CompletedProcess([], 0, output)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: asked)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # the driver is too old
    assert cuda.find_gpus() == VisibleGpus()
    cuda.find_gpus.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert cuda.find_gpus() == expected


def test_is_usable_hides_the_warning_of_torch(monkeypatch):
    def warn() -> bool:
        warnings.warn(
            "CUDA initialization: The NVIDIA driver is too old", UserWarning, stacklevel=2
        )
        return False

    monkeypatch.setattr(torch.cuda, "is_available", warn)
    with warnings.catch_warnings(record=True) as caught:
        assert not cuda.is_usable()
    assert caught == []


def test_driver_device_or_nvidia_smi_indicates_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(cuda, "DRIVER", tmp_path / "version")
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    assert cuda.find_sign_of_gpu() == "nvidia-smi is installed"
    monkeypatch.setattr(Path, "glob", lambda *_: iter([Path("/dev/nvidia0")]))
    assert cuda.find_sign_of_gpu() == "/dev/nvidia*"
    cuda.DRIVER.touch()
    assert cuda.find_sign_of_gpu() == "the NVIDIA driver is loaded"
