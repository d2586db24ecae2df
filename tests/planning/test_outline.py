"""The plan of a run as text."""

from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.planning import outline
from tests.shared.plans import plan_imagenet


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


def test_outline_lists_rates_sizes_hooks_and_published_results():
    outline_text = " ".join(write_outline("hot").split())
    for part in (
        "PFLOPs (10^15 operations), forward and backward",
        "100 px (epochs 1-59), 104 (60-69)",
        "colout, progressive_resizing, label_smoothing, mixup",
        "sam (every 5th step)",
        "by epoch: 0 at 0, 2.05 at 8",
        "81.03% top-1, 810 epochs, 980 min, 8x A100 80GB",
    ):
        assert part in outline_text


def test_outline_describes_each_learning_rate_schedule():
    outline_text = write_outline("mild schedule=constant schedule.warmup=0ep")
    assert "2.048, constant" in outline_text
    outline_text = write_outline("mild checkpoint.interval=2ep schedule.warmup=1ep")
    assert "evaluate every epoch, save a checkpoint every 2 epochs" in outline_text
    assert "rises to 2.048 over 1 epoch, then cosine" in outline_text
    outline_text = write_outline("mild schedule=step schedule.warmup=500ba")
    assert "rises to 2.048 over 500 steps, then multistep to 0.0205" in outline_text
    outline_text = write_outline("mild schedule=step schedule.milestones=[0.5dur,1dur]")
    assert "2.048, multistep to 0.205\n" in outline_text


def test_outline_reports_rounding_only_of_rounded_epochs():
    assert "36 epochs (90 x 0.4) of" in write_outline("mild")
    assert "28 epochs (90 x 0.32, rounded down) of" in write_outline("mild_mlperf")


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (10, "evaluate every step, save a checkpoint every 5 steps"),
        (15, "evaluate every 2 steps, save a checkpoint every 8 steps"),
        (6250, "evaluate every epoch, save a checkpoint every 5 epochs"),
    ],
)
def test_outline_counts_steps_of_fractional_interval(steps, text):
    arguments = f"mild max_duration={steps}ba ssr=1 schedule.warmup=0ep evaluation.interval=0.1dur"
    assert text in " ".join(write_outline(f"{arguments} checkpoint.interval=0.5dur").split())


def test_outline_omits_rate_of_a_frozen_backbone():
    arguments = "mild model.weights=torchvision optimizer.backbone_rate=0.1"
    plan = plan_imagenet(arguments)
    assert "backbone rate 0.1" in dict(outline.describe_details(plan))["optimizer"]
    frozen = replace(plan.recipe, model=replace(plan.recipe.model, freeze="backbone"))
    rows = dict(outline.describe_details(replace(plan, recipe=frozen)))
    assert "backbone rate" not in rows["optimizer"]


def test_outline_names_the_target_that_ends_a_run():
    outline_text = " ".join(write_outline("nvidia_mlperf_pt").split())
    assert "steps; stops early if an evaluation reaches 75.9% top-1 batch" in outline_text


def test_outline_reports_frozen_batchnorm_statistics():
    frozen_text = "of 16 (BatchNorm statistics frozen)"
    thawed_text = "of 16 (BatchNorm statistics per"
    thawed = "finetune model.freeze_bn=false model.freeze=none"
    for arguments, part in {
        "finetune model.freeze=none": frozen_text,
        thawed: thawed_text,
        f"{thawed} model.freeze=layer2": thawed_text,
        "finetune model.freeze_bn=false": frozen_text,
    }.items():
        assert part in " ".join(write_outline(arguments, 1).split())


def test_loader_memory_is_independent_of_threads_and_ranks():
    # Three batches of 2,048 images of 176 px are 571 MB. The rest is one evaluation batch per rank.
    arguments = "mild batch.eval_size=32"
    expected = "up to 687 MB of memory for the batches of 8 devices"
    assert "loader     up to 585 MB of memory for the batches of 1 device" in write_outline(
        arguments, 1
    )
    assert expected in write_outline(arguments)
    assert expected in write_outline(f"{arguments} data.workers=64")


def test_format_sizes_groups_epochs_of_one_size():
    assert outline.format_sizes((88, 88, 92, 96, 96)) == "88 px (epochs 1-2), 92 (3), 96 (4-5)"
    assert outline.format_sizes((64,)) == "64 px (epoch 1)"


def test_format_lines_escapes_control_characters():
    assert outline.format_lines([("name", "a\x1b[2Jb")]) == ["  name       a\\x1b[2Jb"]
