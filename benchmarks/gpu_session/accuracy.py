"""Accuracy against seconds: the recipes of the proof, on uploaded images."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from resnet_recipes.report.comparison import read_settings
from resnet_recipes.run_folder.runs import RunRecord, iterate_runs

PROOF = Path(__file__).parents[1] / "proof"
RECIPES = "tiny_baseline,tiny_mild,tiny_medium,tiny_hot"
EPOCHS, SEEDS = "8,4,16", "1,2,3"  # in this order: a call may end before the last


def measure_rows(device: torch.device, quick: bool, images: str, runs: str) -> Iterator[dict]:
    """Yield a row for each run when it is finished; end when the runs end.

    The next call continues a call that was cut off.
    """
    recipes = RECIPES.partition(",")[0] if quick else RECIPES
    command = [sys.executable, PROOF, images, "--recipes", recipes, "--root", runs]
    command += ["--epochs", EPOCHS, "--seeds", SEEDS]
    command += ["--quick"] if quick else []
    command += ["launch.device=cpu"] if device.type == "cpu" else []
    reported: set[Path] = set()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sys.stderr)
    while process.poll() is None:
        time.sleep(2)
        yield from _iterate_finished(Path(runs), reported)
    yield from _iterate_finished(Path(runs), reported)
    sys.exit(process.returncode)


def _iterate_finished(runs: Path, reported: set[Path]) -> Iterator[dict]:
    """Yield the rows of finished runs that have not been reported yet."""
    for run in iterate_runs(runs) if runs.is_dir() else ():
        if run.state == "finished" and run.folder not in reported:
            reported.add(run.folder)
            yield _make_row(run)


def _make_row(run: RunRecord) -> dict:
    seed = read_settings(run.folder)["seed"]
    return {
        "case": f"{run.recipe}, {run.epochs:g} epochs, seed {seed}",
        "value": run.top1_percent,
        "unit": "% top-1",
        "minutes": run.minutes,
        "pflops": run.pflops,
        "note": f"{60 * (run.minutes or 0):.0f} s of training",
    }
