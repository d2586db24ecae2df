"""What an estimate counts besides training."""

import pytest

from resnet_recipes.measure.estimate import Speeds
from resnet_recipes.planning.estimate import estimate_for
from resnet_recipes.planning.plan import IMAGENET, make_plan
from resnet_recipes.recipe.compose import compose


def evaluation_minutes(*changes: str) -> float:
    """Return the minutes of all evaluations of a run, at 500 images a second."""
    plan = make_plan(compose("mild", changes, needs_data=False).recipe, IMAGENET, 1)
    return estimate_for(plan, Speeds({224: (0.001,)}, None, 500.0, 64)).evaluation_minutes


def test_an_evaluation_with_mirror_images_takes_twice_as_long():
    twice = evaluation_minutes("evaluation.flip=true")
    assert twice == pytest.approx(2 * evaluation_minutes("evaluation.flip=false"))
