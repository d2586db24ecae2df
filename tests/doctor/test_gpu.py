"""The doctor checks the results and speed of GPUs, or names why torch cannot use one."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from resnet_recipes.doctor import Finding, get_exit_code, gpu
from tests.shared.tables import parse_rows

CPU = torch.device("cpu", 0)


def test_torchvision_for_another_torch_is_a_failure(monkeypatch):
    def fail(*_):
        raise RuntimeError("operator torchvision::nms does not exist")

    assert get_exit_code(list(gpu.check_packages())) == 0
    monkeypatch.setattr("torchvision.ops.nms", fail)
    assert get_exit_code(list(gpu.check_packages())) == 3


@pytest.mark.parametrize(
    ("untried", "unused", "texts"),
    [
        (None, None, ["this machine has no GPU that torch can use: runs use the CPU"]),
        (None, Finding("fix", "it is hidden"), ["it is hidden"]),
        (Finding("warn", "a Mac"), Finding("fix", "it is hidden"), ["a Mac", "it is hidden"]),
    ],
)
def test_machine_without_gpu_is_reported(untried, unused, texts, monkeypatch):
    monkeypatch.setattr(gpu, "is_usable", lambda: False)
    monkeypatch.setattr(gpu, "find_untested_machine", lambda: untried)
    monkeypatch.setattr(gpu, "find_unused_gpu", lambda: unused)
    findings = list(gpu.check_devices())
    assert len(findings) == len(texts)
    assert findings[-1].level == (
        "fix" if unused else "ok"
    )  # a machine without a GPU is not an error
    assert all(finding.what.startswith(what) for finding, what in zip(findings, texts, strict=True))


def test_check_devices_lists_precision_and_versions(tmp_path, monkeypatch):
    devices = [
        SimpleNamespace(name="New", total_memory=80e9, major=9, minor=0),
        SimpleNamespace(name="Old", total_memory=8e9, major=7, minor=5),
    ]
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19")
    monkeypatch.setattr(gpu, "DRIVER", driver)
    monkeypatch.setattr(gpu, "is_usable", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", devices.__getitem__)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for name in ("check_convolution", "check_operations", "check_all_reduce"):
        monkeypatch.setattr(gpu, name, lambda *on, name=name: Finding("ok", f"{name} {on}"))
    versions, new, *on_new, speed, old, small, on_old, _, _, all_reduce = gpu.check_devices()
    assert speed.what == "GPU 0: no datasheet for New, so its speed was not checked"
    assert "driver 535.104.05, CUDA 13.0, cuDNN " in versions.what
    assert "bfloat16" in new.what
    assert [finding.what.partition(" ")[0] for finding in on_new] == [
        "check_convolution",
        "check_operations",
    ]
    assert all("index=0), torch.bfloat16" in finding.what for finding in on_new)
    assert "float16 with loss scaling" in old.what
    assert small.level == "warn"
    assert "index=1), torch.float16" in on_old.what
    assert all_reduce.what.count("device") == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_check_convolution_passes_in_every_precision(dtype):
    assert gpu.check_convolution(CPU, dtype).level == "ok"


def test_wrong_or_failing_convolution_is_reported(monkeypatch):
    right, calls = torch.nn.functional.conv2d, []
    for error in (1, float("nan")):
        results = torch.zeros(1), torch.tensor([error])
        monkeypatch.setattr(gpu.F, "conv2d", Mock(side_effect=results))
        assert f"the error is {error:g}" in gpu.check_convolution(CPU, torch.float32).what

    def fail_every_second_time(*args):
        calls.append(args)
        if len(calls) % 2:
            return right(*args)
        raise RuntimeError(
            "CUDA error: no kernel image is available\nCompile with TORCH_USE_CUDA_DSA"
        )

    calls.clear()
    monkeypatch.setattr(gpu.F, "conv2d", fail_every_second_time)
    finding = gpu.check_convolution(CPU, torch.float32)
    assert finding.level == "fix"
    assert finding.what.endswith(
        "cannot compute a convolution: CUDA error: no kernel image is available"
    )
    assert finding.fix.startswith("this torch does not support the GPU")


@pytest.mark.parametrize(
    ("device", "level", "what"),
    parse_rows(
        """
nowhere | ok | GPU 0: the fused operations give the same results
cpu | fix | GPU 0 and the CPU disagree: the kernel of blur is wrong
cpu:0 | warn | GPU 0: the kernel of blur is wrong
"""
    ),
)
def test_differing_operations_are_warning_or_broken_gpu(device, level, what, monkeypatch):
    def compare(_, dtype, reference):
        notes = ("the kernel of blur is wrong",) if str(reference) == device else ()
        return gpu.ops.Operations(notes=notes)

    monkeypatch.setattr(gpu.ops, "compare", compare)
    finding = gpu.check_operations(CPU, torch.float32)
    assert finding.level == level
    assert finding.what.startswith(what)
    assert ("the torch operations instead" in finding.fix) == (level == "warn")


@pytest.mark.parametrize(
    ("traffic", "products", "levels"),
    parse_rows(
        """
1.8e12 | 265e12 | ok ok
1.0e12 | 265e12 | warn ok
1.8e12 | 100e12 | ok warn
"""
    ),
)
def test_slow_gpu_is_compared_with_its_datasheet(monkeypatch, traffic, products, levels):
    monkeypatch.setattr(gpu.rates, "measure_traffic", lambda device: float(traffic))
    monkeypatch.setattr(gpu.rates, "measure_products", lambda device, dtype: float(products))
    findings = list(gpu.check_speed(CPU, torch.bfloat16, "NVIDIA A100-SXM4-80GB"))
    assert [finding.level for finding in findings] == levels.split()
    assert "GPU 0 moves data at " in findings[0].what
    assert "A100 80GB should reach 1.79" in findings[0].what
    assert all(
        ("slow or throttled" in finding.what) == (finding.level == "warn") for finding in findings
    )


def test_check_speed_reports_lack_of_memory(monkeypatch):
    def fail(device):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB\nmore")

    monkeypatch.setattr(gpu.rates, "measure_traffic", fail)
    (finding,) = gpu.check_speed(CPU, torch.bfloat16, "NVIDIA H200")
    assert (
        finding.what
        == "GPU 0: its speed could not be measured: CUDA out of memory. Tried to allocate 1 GiB"
    )


def test_all_reduce_is_checked_and_timed(monkeypatch):
    devices = [torch.device("cpu")] * 3
    full = torch.full
    monkeypatch.setattr(gpu.torch, "full", lambda _, value, **__: full((9,), value))

    def add_up(tensors):
        total = sum(tensor[0].item() for tensor in tensors)
        for number, tensor in enumerate(tensors, 1):
            tensor.fill_(total if total == 6 else number)

    monkeypatch.setattr(gpu, "reduce_all", add_up)
    monkeypatch.setattr(gpu, "time", Mock(perf_counter=Mock(side_effect=[0.0, 0.1])))
    right = gpu.check_all_reduce(devices)
    assert right.level == "ok"
    # in a ring each GPU sends 2 * 2/3 of 102.4 MB
    assert right.what.startswith("NCCL sums over 3 GPUs at 1.37 GB/s: 100 ms ")
    monkeypatch.setattr(gpu, "reduce_all", lambda tensors: None)
    assert gpu.check_all_reduce(devices).what == "NCCL computes wrong sums over the GPUs"

    def fail(tensors):
        raise RuntimeError("NCCL Error 1: unhandled cuda error\nmore")

    monkeypatch.setattr(gpu, "reduce_all", fail)
    assert (
        gpu.check_all_reduce(devices).what
        == "NCCL cannot sum over the GPUs: NCCL Error 1: unhandled cuda error"
    )
    monkeypatch.setattr(gpu.torch, "full", lambda *_, **__: fail([]))
    assert gpu.check_all_reduce(devices).level == "fix"
