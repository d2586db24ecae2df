"""Small recipes and plans, for tests of every package that needs one."""

from functools import cache
from typing import Any

from resnet_recipes import data
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.planning.plan import IMAGENET_FACTS, Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.build import build_recipe
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.schema import Recipe
from tests.shared.tables import merge_sections, parse_settings

#: A complete recipe that takes a fraction of a second: 128 synthetic images, 8 steps of 16 per
#: epoch.
SMALL = (
    "name=small max_duration=2ep seed=3 model.name=resnet18 data.backend=synthetic "
    "data.train_size=32 data.eval_resize=36 data.eval_size=32 batch.global_size=16 "
    "batch.bn_size=16 batch.eval_size=16 optimizer.lr=0.05 schedule.warmup=2ba log.interval=2ba "
    "launch.device=cpu methods={}"
)

#: Settings with which a command trains a packaged recipe in a second: four steps on synthetic
#: images.
TINY = (
    "data.backend=synthetic data.train_size=32 data.eval_resize=36 data.eval_size=32 bs=16 "
    "batch.bn_size=16 lr=0.05 model.name=resnet18 schedule.warmup=1ba max_duration=4ba ssr=1 "
    "launch.device=cpu gpus=1"
)


def make_recipe(arguments: str = "", **changes: Any) -> Recipe:
    """Return a small recipe with changes.

    Changes are arguments, `make_recipe("methods.ema={} seed=1")`, or sections,
    `make_recipe(methods=HOT)`. Raises RecipeError for invalid changes.
    """
    recipe, problems = build_recipe(merge_sections(parse_settings(f"{SMALL} {arguments}"), changes))
    if problems:
        raise RecipeError(problems)
    return recipe


def plan_recipe(arguments: str = "", ranks: int = 1, **changes: Any) -> Plan:
    recipe = make_recipe(arguments, **changes)
    return make_plan(recipe, data.survey_images(recipe.data), ranks)


@cache
def plan_imagenet(arguments: str, ranks: int = 8) -> Plan:
    """Return the plan of a recipe for ImageNet with changes: `plan_imagenet("mild epochs=18")`."""
    name, *changes = arguments.split()
    composed = compose(name, changes, needs_data=False)
    return make_plan(composed.recipe, IMAGENET_FACTS, ranks, composed.origin)
