"""The GPU session, tried on a CPU: calls fit their time limits, and a fault fails one part only."""

import importlib
import json
import os
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from select import select
from unittest.mock import Mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.shared.checks import get_error
from tests.shared.tables import parse_rows, parse_values

SESSION = Path(__file__).parents[1] / "benchmarks" / "gpu_session"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch):
    """Make modules of the session importable as in its command; unload them afterwards."""
    monkeypatch.syspath_prepend(str(SESSION))
    before = set(sys.modules)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the parts of a quick call
    yield
    torch.set_num_threads(threads)
    for name in set(sys.modules) - before:
        if (SESSION / f"{name}.py").exists():
            del sys.modules[name]


def run_call(monkeypatch: pytest.MonkeyPatch, out: Path, *arguments: str) -> tuple[int, list[dict]]:
    """Run a call in this process; return its exit code and the rows in its file."""
    arguments = "--out", str(out), "--device", "cpu", "--quick", *arguments
    monkeypatch.setattr(sys, "argv", [str(SESSION), *arguments])
    error = get_error(SystemExit, runpy.run_path, str(SESSION), run_name="__main__")
    return error.code, list(map(json.loads, out.read_text().splitlines()))


def test_documented_session_commands_run_every_call_within_limits(session):
    from calls import CALLS, COMMAND_SECONDS, SESSION_SECONDS

    page = (SESSION.parents[1] / "docs" / "contributing" / "gpu_session.md").read_text()
    commands = re.findall(r"gpu_session --call ([a-z ]+?) --out", page.partition("\n## ")[0])
    assert [name for names in commands for name in names.split()] == list(CALLS)
    assert len(commands) == 5
    assert all(
        sum(CALLS[name].seconds for name in names.split()) <= COMMAND_SECONDS for names in commands
    )
    assert sum(call.seconds for call in CALLS.values()) <= SESSION_SECONDS
    assert all(part.seconds <= call.seconds for call in CALLS.values() for part in call.parts)


def test_torchvision_loop_uses_benchmark_mode(session, monkeypatch):
    from training_loops import make_loop

    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    make_loop("torchvision reference", 32, 4, torch.device("cpu"), True)
    assert torch.backends.cudnn.benchmark


def fail_second_call(function):
    """Wrap a function so that its second call runs out of memory."""
    calls = iter([False, True])

    def call_or_fail(*arguments, **named):
        if next(calls, False):
            raise torch.OutOfMemoryError("no memory\nis left")
        return function(*arguments, **named)

    return call_or_fail


@pytest.mark.parametrize(
    ("module", "arguments", "what", "last"),
    parse_values("""
kernels | [] | measure_seconds | 'max pool, stride 2, 64 channels, 8 px: torch'
convolutions | [searched] | measure_seconds | 256->512 at 2, input's gradient
steps | ['ours, no methods'] | make_loop | '40 px, 4: ours, no methods'
from_files | [] | make_run | '32 px: training from files'
peak_speeds | [] | find_gpu | matrix product 256
"""),
)
def test_failed_case_keeps_rows_of_other_cases(module, arguments, what, last, session, monkeypatch):
    part = importlib.import_module(module)
    monkeypatch.setattr(part, what, fail_second_call(getattr(part, what)))
    rows = list(part.measure_rows(torch.device("cpu"), True, *arguments))
    faults = [number for number, row in enumerate(rows) if "fault" in row]
    assert [rows[number]["fault"] for number in faults] == ["OutOfMemoryError: no memory"]
    assert faults == [2 if module == "steps" else 1]
    assert rows[-1]["case"].endswith(last)


class ChannelsLast(TorchDispatchMode):
    """Asserts that convolutions and their gradients only get channels_last memory."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if "convolution" in str(function):
            tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
            assert all(each.is_contiguous(memory_format=torch.channels_last) for each in tensors)
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 2)])
def test_convolutions_run_in_channels_last(kernel, stride, session):
    import convolutions

    shape = convolutions.Convolution(4, 6, kernel, stride, 9)
    operands = convolutions.make_operands(shape, 2, torch.device("cpu"))
    calls = convolutions.list_calls(shape, *operands)
    side = -(-9 // stride)
    with ChannelsLast():
        sizes = {name: (*call().shape,) for name, call in calls.items()}
    assert sizes == {
        "output": (2, 6, side, side),
        "weights' gradient": (6, 4, kernel, kernel),
        "input's gradient": (2, 4, 9, 9),
    }


@pytest.mark.parametrize(
    ("kernel", "kind"),
    parse_rows(
        """
_reduce | BatchNorm
_reduce_statistics | BatchNorm
_compute_input_gradient | BatchNorm
void at::native::batch_norm_collect_statistics_channels_last_kernel | BatchNorm
_scatter | blur
void at::native::conv_depthwise2d_forward_kernel | blur
void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BF | max pool
sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16 | convolutions and last layer
void cublasLt::splitKreduce_kernel<32, 16, int | convolutions and last layer
void at::native::reduce_kernel<512, 1 | others
void at::native::_scatter_gather_elementwise_kernel | others
"""
    ),
)
def test_kernels_are_classified_by_name(kernel, kind, session):
    from kernel_profile import classify

    assert classify(kernel) == kind


@pytest.fixture
def make_call(session, monkeypatch, tmp_path) -> Callable[..., None]:
    """Return a function that makes a call `tried` of parts with these bodies.

    They find an empty torch, because importing torch takes seconds.
    """
    from calls import CALLS, Call, Part

    def make(seconds: int = 500, **bodies: str) -> None:
        (tmp_path / "torch.py").write_text("device = set_num_threads = str\n")
        for name, body in bodies.items():
            (tmp_path / f"{name}.py").write_text(f"def measure_rows(device, quick):\n    {body}\n")
        parts = tuple(Part(name, 9999, name) for name in bodies)
        monkeypatch.setitem(CALLS, "tried", Call(seconds, parts))

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return make


def test_crashed_part_keeps_rows_of_other_parts(make_call, monkeypatch, tmp_path):
    row = "yield {'case': 'row', 'value': 1, 'unit': 'x'}"
    make_call(breaks=f"import os; {row}; os.abort()", works=row)
    code, rows = run_call(monkeypatch, tmp_path / "rows.jsonl", "--call", "tried")
    assert code == 1
    assert [(row["part"], row["case"]) for row in rows] == [
        ("breaks", "row"),
        ("breaks", "seconds"),
        ("works", "row"),
        ("works", "seconds"),
    ]
    assert ["fault" in row for row in rows] == [False, True, False, False]
    assert "ended with -6" in rows[1]["fault"]


def test_hung_session_part_is_killed_with_its_child(make_call, monkeypatch):
    import part

    start = "{'case': subprocess.Popen(['sleep', '1000']).pid}"
    make_call(hangs=f"import subprocess, time; yield {start}; time.sleep(1000)")
    rows = part.run_part(part.Part("hangs", 9999, "hangs"), "cpu", True)
    child = os.pidfd_open(next(rows)["case"])
    now = part.time.monotonic()
    monkeypatch.setattr(part.time, "monotonic", lambda: now + 9999)
    (last,) = rows
    assert last["fault"].startswith("stopped after")
    assert select([child], [], [], 10)[0]
    os.close(child)


def test_call_without_time_reports_skipped_parts(make_call, monkeypatch, tmp_path):
    make_call(0, first="", second="")
    code, rows = run_call(monkeypatch, tmp_path / "rows.jsonl", "--call", "tried")
    assert code == 1
    assert [row["part"] for row in rows] == ["first", "second"]
    assert {row["fault"] for row in rows} == {"skipped: earlier parts used up the call's time"}


def test_ratios_use_best_peer_of_same_work(session):
    from ratios import compute_ratios

    def make_row(loop: str, value: float) -> dict:
        return {"loop": loop, "size": "176 px, 256", "value": value, "unit": "images/s"}

    compiled = "hand-written loop, blurred, reduce-overhead"
    rows = [
        make_row("ours, Mild", 90.0),
        make_row("ours, Mild", 110.0),
        make_row("ours, no methods", 300.0),
        make_row("hand-written loop", 999.0),
        make_row(compiled, 80.0),
        make_row("timm, blurred", 50.0),
        make_row("ours, Mild, kernels off", 10.0),
    ]
    ratios = {each["case"]: each["ratio"] for each in compute_ratios(rows)}
    assert ratios == {
        "176 px, 256: ours, no methods over hand-written loop": pytest.approx(300 / 999),
        f"176 px, 256: ours, Mild over {compiled}": pytest.approx(1.25),
    }


def test_step_check_allows_rounding_but_reports_lost_updates(session, monkeypatch):
    import step_checks

    cpu = torch.device("cpu")
    changed = step_checks.compute_changes
    expected = changed(step_checks.NO_METHODS, cpu)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    actual = changed(step_checks.NO_METHODS, cpu)
    lost = [update.clone() for update in actual]
    for update in lost:
        update[torch.arange(update.numel()).view(update.shape) % 100 == 0] = 0.0
    for results, is_correct in ((actual, True), (lost, False)):
        monkeypatch.setattr(step_checks, "compute_changes", Mock(side_effect=[expected, results]))
        row = dict(step_checks.iterate_decisive_checks(cpu))["3 steps, no methods"]()
        assert ("fault" not in row) == is_correct, row
        assert row["value"] > 4 * row["allowed"] or row["value"] < row["allowed"] / 4, row
