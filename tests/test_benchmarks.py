"""Small runs of the benchmarks that make runs by hand: they follow the package, and write what they promise."""

import json
import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def rows_of(benchmark: str, *words: str, rows: Path, patched: pytest.MonkeyPatch) -> list[dict]:
    """Run a benchmark in this process, and return the rows that it wrote."""
    path = BENCHMARKS / benchmark
    patched.setattr(sys, "argv", [str(path), *words, "--json", str(rows)])
    runpy.run_path(str(path), run_name="__main__")
    return json.loads(rows.read_text())


def test_the_loop_is_compared_with_a_bare_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    words = "--batch", "2", "--pixels", "32", "--steps", "3", "--rounds", "1"
    (row,) = rows_of("trainer.py", *words, rows=tmp_path / "rows.json", patched=monkeypatch)
    assert row["case"] == "resnet18 32 px, batch 2, cpu"
    assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])
