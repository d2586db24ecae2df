"""GPUs are counted as CUDA shows them."""

import subprocess
from collections.abc import Callable, Iterator

import pytest
import torch

from resnet_recipes.doctor import cuda
from resnet_recipes.doctor.cuda import Gpus


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Count anew in each test, and after it."""
    cuda.found.cache_clear()
    yield
    cuda.found.cache_clear()


@pytest.fixture
def torch_sees(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that says how many GPUs torch sees, and CUDA's answer."""

    def make(physical: int, answer: str) -> None:
        asked = subprocess.CompletedProcess([], 0, answer)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: physical)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: physical > 0)
        monkeypatch.setattr(torch.version, "cuda", "13.2")
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
    torch_sees(physical, answer)
    assert cuda.found().count == found


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ("8\nNVIDIA A100\n8\n85000\n", Gpus(8, "NVIDIA A100", "bf16", 85000)),
        ("1\nTesla V100\n7\n", Gpus(1, "Tesla V100", "fp16")),
        ("", Gpus(1)),
    ],
)
def test_of_the_first_gpu_is_known_what_cuda_tells(answer, known, torch_sees):
    torch_sees(1, answer)
    assert cuda.found() == known


def test_a_gpu_whose_driver_torch_cannot_use_is_not_counted(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)  # NVML's
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    assert cuda.found() == Gpus()
