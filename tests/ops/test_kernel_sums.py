"""Sums split among programs: the number of programs, their counters and registers."""

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

import tests.ops.cpu_operations  # noqa: F401
from resnet_recipes.ops import batch_norm
from resnet_recipes.ops.kernels import batch_norm as norm_kernels
from resnet_recipes.ops.kernels import statistics, sums

H200 = 132  # multiprocessors
GPU = torch.device("cuda", 0)


def test_samples_split_their_sums_over_several_programs(monkeypatch):
    """As in all sums of a real network; without a GPU, no other test adds partial sums."""
    programs = defaultdict(set)

    def launch(kernel, grid, *_, **__):
        programs[kernel.fn.__name__].add(grid[0])

    for module in (norm_kernels, statistics):
        monkeypatch.setattr(module, "launch", launch)
    monkeypatch.setattr(sums, "_count_multiprocessors", lambda device: H200)
    sums.divide_rows.cache_clear()
    with torch.library._scoped_library("resnet_recipes", "IMPL") as library:
        library.impl("batch_norm", batch_norm._forward_cuda, "CPU", allow_override=True)
        library.impl("batch_norm_backward", batch_norm._backward_cuda, "CPU", allow_override=True)
        for sample in batch_norm.make_samples(torch.Generator().manual_seed(0), torch.float32):
            outputs = batch_norm.fused(*sample.arguments)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            sum(output.sum() for output in outputs).backward()
    sums.divide_rows.cache_clear()
    for kernel in ("_reduce_statistics", "_reduce"):
        assert max(programs[kernel]) > 1, kernel


def test_kernel_counters_are_separate_per_stream_and_graph(monkeypatch):
    stream = SimpleNamespace(cuda_stream=1)
    monkeypatch.setattr(sums, "_allocate_counters", lambda device, stream: (device, stream))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    counters = []
    for capturing, stream.cuda_stream in ((False, 1), (False, 2), (True, 3), (True, 4)):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda now=capturing: now)
        counters.append(sums.get_counters(GPU))
    assert counters[2] == counters[3]
    assert len(set(counters)) == 3


def test_limit_registers_limits_nothing_on_hip(monkeypatch):
    assert sums.limit_registers(4, 5)["maxnreg"] == 96  # 65536 / (4 * 32 * 5), a multiple of 8
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert sums.limit_registers(4, 5) == {"num_warps": 4, "enable_fp_fusion": True}
