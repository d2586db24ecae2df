"""`batch.bn_size=auto`: the number that it stands for on this machine."""

from collections.abc import Callable
from dataclasses import replace

from resnet_recipes.base.errors import RecipeError, TrainingError
from resnet_recipes.data import frozen
from resnet_recipes.launch import gpus, start
from resnet_recipes.launch.group import FIT, Group
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.compose import Composed
from resnet_recipes.recipe.frozen import freeze
from resnet_recipes.recipe.sections import AUTO


def fitted(wanted: Composed, plan: Plan, say: Callable[[str], None]) -> tuple[Composed, Plan]:
    """Return a recipe and its plan with the micro-batch that fits in place of auto.

    It is tried on the first GPU, which takes some seconds; `say` is told what was found and what it
    changes. Raises RecipeError without a GPU, TrainingError if nothing fits.
    """
    if plan.recipe.batch.bn_size != AUTO:
        return wanted, plan
    if plan.recipe.launch.device == "cpu" or not gpus.count():
        rule = "is found by trying on a GPU, and this run has none"
        raise RecipeError.of("batch.bn_size", AUTO, rule, "batch.bn_size=64")
    size = _largest(plan, say)
    say(f"batch.bn_size={size} is the most that fits on {gpus.first()[0] or 'this GPU'}.")
    say(f"BatchNorm sees {size} images at a time: compare runs with the same number.")
    recipe = replace(wanted.recipe, batch=replace(wanted.recipe.batch, bn_size=size))
    return replace(wanted, recipe=recipe), replace(plan, recipe=recipe)


def _largest(plan: Plan, say: Callable[[str], None]) -> int:
    # imports torchvision, which takes seconds
    from resnet_recipes.process.fitting import FOUND, RECIPE

    alone = replace(
        plan.recipe,
        batch=replace(plan.recipe.batch, global_size=plan.rank_size),
        data=replace(plan.recipe.data, backend="synthetic"),
    )
    facts = replace(plan.facts, backend="synthetic")
    files = {RECIPE: freeze(alone), frozen.NAME: frozen.dump(facts)}
    with start.started(files, Group(program=FIT), say) as (folder, ending):
        if ending.code:
            raise TrainingError(f"the micro-batch that fits was not found: see {folder}")
        return int((folder / FOUND).read_text())
