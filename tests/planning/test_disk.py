"""The room on disk that a run is planned to need is what its files take."""

import pytest

from resnet_recipes.planning.plan import IMAGENET, make_plan
from resnet_recipes.recipe.compose import compose


def disk(*words: str):
    """Return the plan of Mild's files, on ImageNet."""
    return make_plan(compose("mild", words, needs_data=False).recipe, IMAGENET, 1).disk


@pytest.mark.parametrize(
    ("words", "copies"),
    [
        ([], 3),  # weights, momentum and EMA
        (["~methods.ema"], 2),
        (["~methods.ema", "optimizer=lamb"], 3),
        (["checkpoint.best=top1"], 4),
        (["optimizer=adamw", "methods.sam={}"], 4),  # SAM's copy is not saved
    ],
)
def test_a_checkpoint_holds_the_weights_and_all_that_is_kept_for_each(words, copies):
    weights = 4 * 25_557_032  # torchvision's count of ResNet-50's parameters
    assert disk(*words).checkpoint == pytest.approx(copies * weights, rel=0.02)
    # the final ones, the raw ones and the best
    files = 1 + ("~methods.ema" not in words) + ("checkpoint.best=top1" in words)
    assert disk(*words).weights == pytest.approx(files * weights, rel=0.02)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ([], 3),  # two are kept until a third is safe
        (["checkpoint.keep=5"], 6),
        (["epochs=2", "schedule.warmup=1ep"], 2),  # there are only two
        (["checkpoint.interval=100ep", "checkpoint.keep=100"], 1),
    ],
)
def test_no_more_checkpoints_are_counted_than_there_are_at_a_time(words, count):
    assert disk(*words).checkpoints == count


def test_the_plan_has_a_line_for_it():
    assert str(disk()) == "1.14 GB: 3 checkpoints of 310 MB, and the weights"
    assert "2 checkpoints" in str(disk("epochs=2", "schedule.warmup=1ep"))
    assert "1 checkpoint of" in str(disk("checkpoint.interval=100ep"))
