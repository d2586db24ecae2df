"""GPUs are counted as CUDA shows them, and one that torch does not see is not overlooked."""

import shutil
import subprocess

import pytest
import torch

from resnet_recipes.launch import gpus


@pytest.fixture(autouse=True)
def forgetful() -> None:
    """Count anew in each test."""
    gpus._answer.cache_clear()


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
def test_cuda_decides_how_many_gpus_there_are(physical, answer, found, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: physical)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(
        subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, answer)
    )
    assert gpus.count() == found


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ("8\nNVIDIA A100\n8\n", ("NVIDIA A100", "bf16")),
        ("1\nTesla V100\n7\n", ("Tesla V100", "fp16")),
        ("", ("", "")),
    ],
)
def test_the_first_gpu_has_a_name_and_its_compute_type(answer, known, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(
        subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, answer)
    )
    assert gpus.first() == known


@pytest.mark.parametrize(
    ("build", "visible", "why"),
    [
        (None, None, "is built for CPUs"),
        ("13.2", "", "CUDA_VISIBLE_DEVICES='' hides it"),
        ("13.2", None, "the driver may be too old"),
    ],
)
def test_a_gpu_that_torch_does_not_see_is_reported_with_the_reason(
    build, visible, why, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setattr(torch.version, "hip", None)
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
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpus.unused() == ""


def test_nvidia_smi_is_a_sign_of_a_gpu(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert gpus._sign_of_a_gpu()
