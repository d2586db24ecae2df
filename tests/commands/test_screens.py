"""Screens of the main verbs, kept as text: `python -m tests.commands.test_screens` writes them."""

import io
import os
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from resnet_recipes import cli
from tests.run_folders import run_folder

GOLDEN = Path(__file__).parents[1] / "golden"

SCREENS = {
    "runs": ["runs", "--price", "36"],
    "compare": ["compare", "first", "better"],
    "watch": ["watch", "first", "--once"],
    "mistakes": ["train", "mild", "--batch-size", "64", "--no-ema", "--epochs", "3"],
}


def screen(words: list[str], folder: Path, columns: int) -> str:
    """Return what a command prints in a folder with three runs, on a terminal of some columns."""
    said = io.StringIO()
    before, os.environ["COLUMNS"] = os.environ.get("COLUMNS", "80"), str(columns)
    place = Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(said), redirect_stderr(said):
            cli.main(words)
    finally:
        os.chdir(place)
        os.environ["COLUMNS"] = before
    return said.getvalue()


def with_runs(folder: Path) -> Path:
    """Make the runs that the screens show."""
    run_folder(folder / "runs", "first", top1=70.0)
    run_folder(folder / "runs", "better", top1=75.9, recipe="hot", seed=2)
    run_folder(folder / "runs", "medium-epochs22.5-seed1-0a1b2c3d", state="failed", epochs=9.0)
    return folder


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("name", SCREENS)
def test_the_screen_is_the_one_that_was_looked_at(name, columns, tmp_path):
    found = screen(SCREENS[name], with_runs(tmp_path), columns)
    assert found == (GOLDEN / f"{name}-{columns}.txt").read_text()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        root = with_runs(Path(made))
        for name, words in SCREENS.items():
            for columns in (80, 40):
                (GOLDEN / f"{name}-{columns}.txt").write_text(screen(words, root, columns))
