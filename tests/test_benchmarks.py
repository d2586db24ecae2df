"""A small run of the benchmark that makes a run by hand: it follows the package, and writes what it promises."""

import json
import runpy
import sys
from pathlib import Path

import pytest

TRAINER = Path(__file__).parents[1] / "benchmarks" / "trainer.py"


def test_the_loop_is_compared_with_a_bare_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = tmp_path / "rows.json"
    options = ["--batch", "2", "--pixels", "32", "--steps", "3", "--rounds", "1", "--json", str(rows)]
    monkeypatch.setattr(sys, "argv", [str(TRAINER), *options])
    runpy.run_path(str(TRAINER), run_name="__main__")
    (row,) = json.loads(rows.read_text())
    assert row["case"] == "resnet18 32 px, batch 2, cpu"
    assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
