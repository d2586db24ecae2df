"""Plans of packaged recipes on ImageNet, from command-line arguments."""

from functools import cache

from resnet_recipes.planning.plan import IMAGENET_FACTS, Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.compose import compose


@cache
def plan_imagenet(words: str, ranks: int = 8) -> Plan:
    """Return the plan of a recipe with changes: `plan_imagenet("mild epochs=18")`."""
    name, *changes = words.split()
    composed = compose(name, changes, needs_data=False)
    return make_plan(composed.recipe, IMAGENET_FACTS, ranks, composed.origin)
