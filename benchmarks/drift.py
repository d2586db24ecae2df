"""How far Mild's losses drift on a CPU if the references of fused operations replace torch's modules.

    python benchmarks/drift.py DATA [--steps 200] [--dtypes float32,float64] [--json FILE]

DATA has train/ and val/ by class; CIFAR-10's images are of the right size. Each run trains Mild on
at most 32 images of each class, at 16 to 32 pixels in batches of 16, at its peak rate for that
batch. The first has torch's modules. The others change one thing: they have the modules of a GPU
with every operation in plain torch ("plain"), or with the gradients that the kernels compute,
written out in torch ("gradients"), or one weight is an ulp away ("one ulp"). The table has the
largest differences from the losses of the first. Takes 6 minutes on one core, 12 in float64, where
the loss is torch's own in all runs.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock, patch

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from resnet_recipes import data, ops
from resnet_recipes.network.build import build_network
from resnet_recipes.ops import Operations
from resnet_recipes.planning.plan import make_plan
from resnet_recipes.recipe.compose import compose
from resnet_recipes.training import build as building
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.loop import train
from resnet_recipes.training.reporter import RunReporter
from resnet_recipes.training.run import Run

IMAGES, BATCH = 32, 16  # images of each class, and of a step
PEAK = 2.048 * BATCH / 2048  # Mild's learning rate for this batch
CHANGES = ("plain", "gradients", "one ulp")


def operations(changed: str) -> Operations:
    """Return what a GPU would get; plain operations are wrapped, as the default ones would not change a network."""
    modules = {name: getattr(ops, name) for name in ("images", "blur", "batch_norm", "stem")}
    if changed == "gradients":
        return Operations(**{name: module.fused for name, module in modules.items()})
    return Operations(
        **{name: lambda *rest, call=module.plain: call(*rest) for name, module in modules.items()}
    )


def few_images(source: Path, folder: Path) -> Path:
    """Return the folder, with links to some images of each class."""
    for split in ("train", "val"):
        for kind in sorted(path for path in (source / split).iterdir() if path.is_dir()):
            (folder / split / kind.name).mkdir(parents=True)
            for image in sorted(kind.iterdir())[:IMAGES]:
                (folder / split / kind.name / image.name).symlink_to(image.resolve())
    return folder


def run_of(images: Path, steps: int, dtype: torch.dtype, changed: str = "") -> Run:
    """Return a run of Mild that computes in this dtype."""
    recipe = compose(
        "mild",
        [
            f"data={images}",
            "data.train_size=32",
            "data.eval_resize=32",
            "data.eval_size=32",
            "launch.device=cpu",
            f"max_duration={steps}ba",
            "scale_schedule_ratio=1",
            "schedule.warmup=0.22dur",
            f"optimizer.lr={PEAK}",
            f"batch.global_size={BATCH}",
            f"batch.bn_size={BATCH}",
            f"precision.kernels={'auto' if changed in ('plain', 'gradients') else 'off'}",
        ],
    ).recipe

    def network(*arguments: object) -> nn.Module:
        model = build_network(*arguments).to(dtype)
        model.register_forward_pre_hook(lambda _, inputs: inputs[0].to(dtype))
        return model

    with (
        patch.object(ops, "choose", lambda *_: operations(changed)),
        patch.object(building, "build_network", network),
    ):
        run = building.build(
            make_plan(recipe, data.measure(recipe.data), 1), Rank(0, 0, 1, torch.device("cpu"))
        )
    if dtype == torch.float64:  # the package's loss is always float32
        run.methods.loss = in_float64
    if changed == "one ulp":
        weights = run.model.conv1.weight.data[0, 0, 0]
        weights[0] = torch.nextafter(weights[0], weights.new_tensor(math.inf))
    return run


def in_float64(logits: Tensor, targets: Tensor) -> Tensor:
    """Return Mild's loss."""
    total = F.binary_cross_entropy_with_logits(logits, targets.double(), reduction="sum")
    return total / len(logits)


def losses_of(run: Run) -> list[float]:
    """Train, and return the loss of every step."""
    reporter = Mock(spec=RunReporter, **{"wants_to_stop.return_value": False})
    train(run, reporter)
    building.close(run)
    return [float(call.args[1]) for call in reporter.step.call_args_list]


def rows_of(images: Path, steps: int, dtype: torch.dtype) -> Iterator[dict]:
    """Yield how far the losses are from those of torch's modules, for each change."""
    expected, bounds = (
        losses_of(run_of(images, steps, dtype)),
        sorted({0, steps // 20, steps // 4, steps // 2, steps}),
    )
    for changed in CHANGES:
        found = losses_of(run_of(images, steps, dtype, changed))
        apart = [abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True)]
        yield {
            "dtype": str(dtype).removeprefix("torch."),
            "changed": changed,
            "apart": {f"{a + 1}-{b}": max(apart[a:b]) for a, b in pairwise(bounds)},
        }


def main() -> None:
    """Train every case, print a table, and write the rows to a file if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images = few_images(arguments.data, Path(folder))
        rows = [
            row
            for dtype in arguments.dtypes.split(",")
            for row in rows_of(images, arguments.steps, getattr(torch, dtype))
        ]
    table = Table(
        "dtype",
        "changed",
        *rows[0]["apart"],
        title="largest relative difference of the loss, by steps",
    )
    for row in rows:
        table.add_row(
            row["dtype"], row["changed"], *(f"{x:.0e}" if x else "0" for x in row["apart"].values())
        )
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
