"""The plan of a run as text."""

from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.planning import outline
from tests.shared.checks import check_text
from tests.shared.plans import plan_imagenet
from tests.shared.tables import parse_rows


def write_outline(arguments: str, ranks: int = 8) -> str:
    return "\n".join(outline.format_lines(outline.describe_plan(plan_imagenet(arguments, ranks))))


def test_outline_is_ascii_in_eighty_columns():
    for name in ("mild", "medium", "hot"):
        lines = write_outline(name).splitlines()
        assert max(map(len, lines)) <= 80
        assert all(line.isascii() for line in lines)


def test_outline_of_hot_matches_golden_file():
    """The golden file starts with images, disk space and published accuracy; details follow."""
    plan = plan_imagenet("hot")
    rows = [
        *outline.describe_essentials(plan, [("device", "8 x GPU")]),
        outline.BLANK,
        *outline.describe_details(plan),
    ]
    golden = (Path(__file__).parent / "golden/hot.txt").read_text()
    assert "\n".join(outline.format_lines(rows)) + "\n" == golden


@pytest.mark.parametrize(
    "row",
    parse_rows(
        """
8 | hot | PFLOPs (10^15 operations), forward and backward | 100 px (epochs 1-59), 104 (60-69) | \
colout, progressive_resizing, label_smoothing, mixup | sam (every 5 steps) | \
by epoch: 0 at 0, 2.05 at 8 | 81.03% top-1, 810 epochs, 980 min, 8x A100 80GB
8 | mild schedule=constant schedule.warmup=0ep | 2.048, constant
8 | mild checkpoint.interval=2ep schedule.warmup=1ep | rises to 2.048 over 1 epoch, then cosine | \
evaluate every epoch, save a checkpoint every 2 epochs
8 | mild schedule=step schedule.warmup=500ba | \
rises to 2.048 over 500 steps, then multistep to 0.0205
8 | mild schedule=step schedule.milestones=[0.5dur,1dur] | 2.048, multistep to 0.205 optimizer
8 | mild | 36 epochs (90 x 0.4) of
8 | mild_mlperf | 28 epochs (90 x 0.32, rounded down) of
8 | mild max_duration=10ba ssr=1 schedule.warmup=0ep evaluation.interval=0.1dur \
checkpoint.interval=0.5dur | evaluate every step, save a checkpoint every 5 steps
8 | mild max_duration=15ba ssr=1 schedule.warmup=0ep evaluation.interval=0.1dur \
checkpoint.interval=0.5dur | evaluate every 2 steps, save a checkpoint every 8 steps
8 | mild max_duration=6250ba ssr=1 schedule.warmup=0ep evaluation.interval=0.1dur \
checkpoint.interval=0.5dur | evaluate every epoch, save a checkpoint every 5 epochs
8 | nvidia_mlperf_pt | steps; stops early if an evaluation reaches 75.9% top-1 batch
1 | finetune model.freeze=none | of 16 (BatchNorm statistics frozen)
1 | finetune model.freeze_bn=false | of 16 (BatchNorm statistics frozen)
1 | finetune model.freeze_bn=false model.freeze=none | of 16 (BatchNorm statistics per
1 | finetune model.freeze_bn=false model.freeze=layer2 | of 16 (BatchNorm statistics per
1 | mild batch.eval_size=32 | loader up to 585 MB of memory for the batches of 1 device
8 | mild batch.eval_size=32 | up to 687 MB of memory for the batches of 8 devices
8 | mild batch.eval_size=32 data.workers=64 | up to 687 MB of memory for the batches of 8 devices
"""
    ),
)
def test_outline_describes_recipe_and_changes(row):
    """Three batches of 2,048 images of 176 px are 571 MB; each rank adds an evaluation batch."""
    ranks, arguments, *parts = row
    check_text(" ".join(write_outline(arguments, int(ranks)).split()), parts)


def test_outline_omits_rate_of_a_frozen_backbone():
    arguments = "mild model.weights=torchvision optimizer.backbone_rate=0.1"
    plan = plan_imagenet(arguments)
    assert "backbone rate 0.1" in dict(outline.describe_details(plan))["optimizer"]
    frozen = replace(plan.recipe, model=replace(plan.recipe.model, freeze="backbone"))
    rows = dict(outline.describe_details(replace(plan, recipe=frozen)))
    assert "backbone rate" not in rows["optimizer"]


def test_format_sizes_groups_epochs_of_one_size():
    assert outline.format_sizes((88, 88, 92, 96, 96)) == "88 px (epochs 1-2), 92 (3), 96 (4-5)"
    assert outline.format_sizes((64,)) == "64 px (epoch 1)"


def test_format_lines_escapes_control_characters():
    assert outline.format_lines([("name", "a\x1b[2Jb")]) == ["  name       a\\x1b[2Jb"]
