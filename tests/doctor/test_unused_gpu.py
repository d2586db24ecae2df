"""GPUs that torch cannot use and untested machines are reported, with the reason."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from resnet_recipes import cuda
from resnet_recipes.base.errors import list_advice
from resnet_recipes.doctor import unused_gpu
from tests.shared.tables import parse_rows


@pytest.fixture
def set_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def make(gpu: bool, cuda: str | None = "13.2", hip: str | None = None) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", hip)

    return make


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

    monkeypatch.setattr(unused_gpu.ctypes, "CDLL", load_library)
    set_visible_gpus(False, build, hip)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible.strip("'"))
    monkeypatch.setattr(cuda, "find_sign_of_gpu", lambda: "")
    assert unused_gpu.find_unused_gpu() is None
    monkeypatch.setattr(cuda, "find_sign_of_gpu", lambda: "nvidia-smi is installed")
    cells = unused_gpu.find_unused_gpu()
    assert cells.level == "fix"
    assert cells.what.startswith("this machine seems to have a GPU (nvidia-smi is installed), but ")
    assert why in cells.what
    assert fix in " ".join(list_advice(cells.fix))
    set_visible_gpus(True)
    assert unused_gpu.find_unused_gpu() is None


def test_mps_and_rocm_are_reported_as_untested(set_visible_gpus, monkeypatch):
    monkeypatch.setattr(unused_gpu.sys, "platform", "linux")
    assert unused_gpu.find_untested_machine() is None
    set_visible_gpus(False, None, "7.1")
    assert unused_gpu.find_untested_machine() is None  # no GPU
    set_visible_gpus(True, None, "7.1")
    assert "AMD GPUs (ROCm)" in unused_gpu.find_untested_machine().what
    monkeypatch.setattr(unused_gpu.sys, "platform", "darwin")
    assert "Apple GPUs (mps) are not supported" in unused_gpu.find_untested_machine().what
