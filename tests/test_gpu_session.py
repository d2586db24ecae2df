"""The session on a GPU, tried on a CPU: its calls fit their time, and a fault costs one part."""

import json
import runpy
import sys
from pathlib import Path

import pytest

SESSION = Path(__file__).parents[1] / "benchmarks" / "gpu_session"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch):
    """Let modules of the session be imported as its command does, and forgotten afterwards."""
    monkeypatch.syspath_prepend(str(SESSION))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if (SESSION / f"{name}.py").exists():
            del sys.modules[name]


def rows_of(monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> tuple[int, list[dict]]:
    """Run a call in this process; return its exit code and the rows in its file."""
    words = "--out", str(out), "--device", "cpu", "--quick", *words
    monkeypatch.setattr(sys, "argv", [str(SESSION), *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SESSION), run_name="__main__")
    return ended.value.code, list(map(json.loads, out.read_text().splitlines()))


def test_no_call_is_planned_to_take_more_than_nine_minutes(session):
    from calls import CALLS, LIMIT

    assert {
        name: sum(part.seconds for part in parts) <= LIMIT for name, parts in CALLS.items()
    } == dict.fromkeys(CALLS, True)


def test_every_part_has_a_module(session):
    from calls import CALLS

    missing = [
        part.module
        for parts in CALLS.values()
        for part in parts
        if not (SESSION / f"{part.module}.py").exists()
    ]
    assert not missing


def test_a_fault_in_one_part_leaves_the_rows_of_all_others(session, monkeypatch, tmp_path):
    from calls import CALLS, Part

    (tmp_path / "breaks.py").write_text(
        "import os\n"
        "def rows(device, quick):\n"
        "    yield {'case': 'before', 'value': 1, 'unit': 'x'}\n"
        "    os.abort()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    parts = [Part("first", 60, "breaks"), Part("second", 60, "machine")]
    monkeypatch.setitem(CALLS, "whole", parts)
    out = tmp_path / "rows.jsonl"
    code, rows = rows_of(monkeypatch, out, "--call", "whole")
    assert code == 1
    assert [row["case"] for row in rows if row["part"] == "first"] == ["before", "seconds"]
    assert "ended with -6" in rows[1]["fault"]
    assert [row["case"] for row in rows if "fault" in row] == ["seconds"]
    assert {"torch", "seconds"} <= {row["case"] for row in rows if row["part"] == "second"}


def test_a_part_that_hangs_is_stopped_and_keeps_what_it_measured(session, monkeypatch, tmp_path):
    from calls import Part
    from part import run

    (tmp_path / "hangs.py").write_text(
        "import time\n"
        "def rows(device, quick):\n"
        "    yield {'case': 'before', 'value': 1, 'unit': 'x'}\n"
        "    time.sleep(100)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    first, last = run(Part("hanging", 8, "hangs"), "cpu", True)
    assert first["case"] == "before"
    assert "stopped after" in last["fault"]


def test_ratios_compare_ours_with_the_best_peer_that_does_the_same_work(session):
    from ratios import ratios

    def row(contender: str, value: float) -> dict:
        return {"contender": contender, "size": "176 px, 256", "value": value, "unit": "images/s"}

    rows = [
        row("ours, Mild", 90.0),
        row("ours, Mild", 110.0),
        row("ours, no methods", 300.0),
        row("bare loop", 999.0),
        row("bare loop, blurred, reduce-overhead", 80.0),
        row("timm, blurred", 50.0),
        row("ours, Mild, kernels off", 10.0),
    ]
    found = {each["case"]: each["ratio"] for each in ratios(rows)}
    assert found == {
        "176 px, 256: ours, no methods over bare loop": pytest.approx(300 / 999),
        "176 px, 256: ours, Mild over bare loop, blurred, reduce-overhead": pytest.approx(1.25),
    }
