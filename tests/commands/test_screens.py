"""Golden screens of the main commands; `python -m tests.commands.test_screens` writes them."""

import re
import tempfile
from pathlib import Path

import pytest
import yaml

from resnet_recipes.base.duration import Recurrence
from resnet_recipes.report.console import LiveConsole
from resnet_recipes.run_folder.facts import PublishedResult, RunFacts
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.run_folder.summary import Summary
from tests.commands.golden import run_line, work_in
from tests.report.terminals import TerminalStream
from tests.shared.run_folders import create_run_folder
from tests.shared.tables import parse_rows

GOLDEN = Path(__file__).parents[1] / "golden"

SCREENS = dict(
    parse_rows(
        """
runs | runs --price 36
compare | compare first better
watch | watch first --once
mistakes | train mild --batch-size 64 --no-ema --epochs 3
unknown | show resnet
ls | ls
plan | plan hot launch.device=cpu epochs=18
methods | methods
method | methods mixup
help | --help
help-train | train --help
help-convert | convert --help
summary |
"""
    )
)


SUMMARY = """
{recipe: mild, folder: runs/first, devices: 8 x NVIDIA A100-SXM4-80GB, steps: 22500, epochs: 36.0,
sessions: 2, weights: runs/first/weights.safetensors, best: null, best_weights: null,
raw_weights: runs/first/weights-raw.safetensors, training_seconds: 1560.0,
estimated_seconds: 1500.0, images_per_second_by_pixels: {128: 20000.0}, images_per_second: 18750.0,
data_wait_share: 0.02, evaluations: 9, evaluation_seconds: 90.0, wall_seconds: 1700.0,
price_per_hour: 1.2, cost: 0.57}
"""


def show_summary() -> str:
    err = TerminalStream()
    out = TerminalStream()
    values = dict.fromkeys(Summary.__annotations__, 10.0) | yaml.safe_load(SUMMARY)
    values |= {
        "ema": Metrics(76.5, 93.2, 1.0, 50_000),
        "raw": Metrics(78.1, 94.0, 1.0, 50_000),
        "published": PublishedResult(76.6, 32, 25.3, "8x A100 40GB", "MosaicML, Mosaic ResNet"),
    }
    facts = RunFacts("mild", Path(), 40, 10, 100, (1,) * 4, Recurrence(10, 40), "CPU")
    console = LiveConsole(facts, err, out)
    console.begin(0)
    console.show_evaluation(10, values["ema"], values["raw"], 60.0)
    console.show_result(Summary(**values))
    screen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err.getvalue() + out.getvalue())
    screen = re.sub(r"(?m)^(epoch |reading).*", "", screen.replace("\r", "\n"))  # redrawn lines
    return re.sub(r"\n{2,}", "\n\n", screen).lstrip("\n")


def show_screen(arguments: str, folder: Path, columns: int) -> str:
    """Return the output of a command in a folder with three runs, for a terminal of this width."""
    with work_in(folder, columns):
        if not arguments:
            return show_summary()
        _, out, err = run_line(f"resnet-recipes {arguments}")
    return out + err


def create_runs(folder: Path) -> Path:
    create_run_folder(folder / "runs", "first", top1=70.0)
    create_run_folder(folder / "runs", "better", top1=75.9, recipe="hot", seed=2)
    create_run_folder(
        folder / "runs", "medium-epochs22.5-seed1-0a1b2c3d", state="failed", epochs=9.0
    )
    return folder


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("name", SCREENS)
def test_screen_equals_its_golden_file(name, columns, tmp_path):
    screen = show_screen(SCREENS[name], create_runs(tmp_path), columns)
    assert screen == (GOLDEN / f"{name}-{columns}.txt").read_text()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        root = create_runs(Path(folder))
        for name, arguments in SCREENS.items():
            for columns in (80, 40):
                (GOLDEN / f"{name}-{columns}.txt").write_text(show_screen(arguments, root, columns))
