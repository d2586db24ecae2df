"""Plans of a run with ten steps per epoch, for tests of planning."""

from pathlib import Path

from resnet_recipes.data.base import DataFacts
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.build import build_recipe
from resnet_recipes.recipe.schema import Recipe
from tests.shared.tables import parse_settings


def make_facts(
    examples: int = 1_281_167, classes: int = 1000, backend: str = "torchvision"
) -> DataFacts:
    return DataFacts(
        backend, Path("/data"), examples, 50, tuple(f"c{index}" for index in range(classes))
    )


def make_small_recipe(arguments: str = "") -> Recipe:
    """Return a recipe for 1,000 images: 10 steps of 100 per epoch."""
    base = "name=small max_duration=10ep schedule.warmup=1ep optimizer.lr=0.1 data.root=/data"
    recipe, problems = build_recipe(
        parse_settings(f"{base} batch.global_size=100 batch.bn_size=100 {arguments}")
    )
    assert not problems
    return recipe


def plan_small(recipe: Recipe, examples: int = 1000, ranks: int = 1, **facts_changes) -> Plan:
    return make_plan(recipe, make_facts(examples, classes=10, **facts_changes), ranks)
