"""Draw the pictures of README.md and docs/: published results, our results, and a plan.

python tools/pictures.py
"""

import io
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from resnet_recipes.planning.published_results import list_published_results
from resnet_recipes.report.page.charts import ChartRow, find_pareto, plot_accuracy, write_pictures

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

#: Recipes whose published results are filled points; baselines are open points behind.
RECIPES = ("mild", "hot")

#: Our experiments, accuracy against cost: the picture, its recipes, and the location of runs.
PROOF = ROOT / "benchmarks" / "proof"
PROOFS = (
    (
        "proof.png",
        "tiny_baseline,tiny_mild,tiny_medium,tiny_hot",
        PROOF / "results.csv",
        "--minutes",
        PROOF / "minutes.csv",
    ),
    ("gentle.png", "tiny_baseline,tiny_mild,tiny_gentle", PROOF / "test_gpu.csv"),
)

#: A plan for a machine with eight GPUs, independent of this machine.
PLAN = "resnet-recipes plan mild gpus=8"


def run(command: str) -> str:
    """Run a command of this package in an empty folder, and return its output."""
    name, *arguments = shlex.split(command)
    path = str(Path(sys.executable).with_name(name))
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [path, *arguments], cwd=empty, capture_output=True, text=True, check=True
        )
    return done.stdout


def draw_terminal(command: str) -> str:
    """Return an SVG of a terminal that shows a command; it does not load external fonts."""
    console = Console(record=True, width=82, file=io.StringIO())
    console.print(Text(f"$ {command}", style="bold green"))
    console.print(Text(run(command).rstrip()))
    return re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=""), flags=re.DOTALL)


def iterate_results() -> Iterator[ChartRow]:
    """Yield the published results on 8x A100 by training time."""
    for result in list_published_results():
        if result["minutes"] and not result["clock"] and "8x A100" in result["hardware"]:
            yield {
                "series": result["recipe"],
                "top1_percent": result["top1"],
                "minutes": result["minutes"],
            }


def main() -> None:
    """Write all pictures."""
    (DOCS / "plan.svg").write_text(draw_terminal(PLAN))
    rows = list(iterate_results())
    lines = (
        find_pareto([row for row in rows if row["series"] == name], "minutes", 1.0)
        for name in RECIPES
    )
    pareto = [row for line in lines for row in line]
    baselines = [row for row in rows if row["series"] not in RECIPES]
    plot = plot_accuracy(pareto, "minutes", "training time on 8x A100 (min)", baselines)
    # the first layer is the Pareto front, which omits the baselines
    plot["layer"] = plot["layer"][1:]
    write_pictures(DOCS, {"published": plot})
    for name, recipes, *runs in PROOFS:
        arguments = [
            sys.executable,
            PROOF,
            "--png",
            DOCS / name,
            "--recipes",
            recipes,
            "--table",
            *runs,
        ]
        subprocess.run(arguments, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
