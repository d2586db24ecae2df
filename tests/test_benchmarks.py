"""Small runs of the benchmarks that make runs by hand: they follow the package, and write what they promise."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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


@pytest.mark.slow
def test_mild_has_the_same_losses_with_the_modules_of_a_gpu_and_others_with_another_weight(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(8):
                pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / name / f"{number}.jpg")
    words = str(tmp_path), "--steps", "2", "--dtypes", "float32"
    plain, gradients, ulp = rows_of(
        "drift.py", *words, rows=tmp_path / "rows.json", patched=monkeypatch
    )
    assert plain == {"dtype": "float32", "changed": "plain", "apart": {"1-1": 0, "2-2": 0}}
    assert gradients["apart"]["1-1"] == 0
    assert ulp["apart"]["2-2"] > 0
