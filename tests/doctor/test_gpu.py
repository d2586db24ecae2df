"""What keeps torch from a GPU is named."""

from types import SimpleNamespace

import torch

from resnet_recipes.doctor import exit_code, gpu


def test_packages_that_fit_are_fine():
    assert exit_code(list(gpu._packages())) == 0


def test_a_torchvision_built_for_another_torch_must_be_replaced(monkeypatch):
    def fail(*_):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("torchvision.ops.nms", fail)
    assert exit_code(list(gpu._packages())) == 3


def test_a_machine_without_gpu_can_still_run(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu.shutil, "which", lambda name: None)
    assert [finding.level for finding in gpu._devices()] == ["warn"]


def test_a_driver_that_torch_cannot_use_must_be_put_right(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    for version, word in ((None, "without CUDA"), ("13.0", "too old")):
        monkeypatch.setattr(torch.version, "cuda", version)
        (finding,) = gpu._devices()
        assert finding.level == "fix"
        assert word in finding.what


def test_devices_are_described_with_their_precision(monkeypatch):
    devices = [SimpleNamespace(name="New", total_memory=80e9, major=9), SimpleNamespace(name="Old", total_memory=8e9, major=7)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", devices.__getitem__)
    new, old, small = gpu._devices()
    assert "bfloat16" in new.what
    assert "float16 with loss scaling" in old.what
    assert small.level == "warn"
