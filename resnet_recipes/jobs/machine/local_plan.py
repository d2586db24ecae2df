"""Plan a recipe on the devices of this machine, with all settings resolved that depend on it."""

from typing import TYPE_CHECKING

from resnet_recipes import data
from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.text import Say
from resnet_recipes.jobs.machine.budget import fit_budget
from resnet_recipes.jobs.machine.memory import resolve_memory_pixels
from resnet_recipes.jobs.machine.micro_batch import fit_micro_batch
from resnet_recipes.jobs.ranks.group import make_group
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.planner import make_plan

if TYPE_CHECKING:  # ranks never import Hydra
    from resnet_recipes.recipe.compose import ComposedRecipe


def plan_here(composed: "ComposedRecipe", say: Say) -> Plan:
    """Return the plan of a recipe on the devices of this machine."""
    return resolve_plan(plan_unresolved(composed), say)


def plan_unresolved(composed: "ComposedRecipe", reads_teachers: bool = True) -> Plan:
    """Return the plan of a recipe on the devices of this machine, before `resolve_plan`."""
    recipe = composed.recipe
    errors = ErrorCollector()
    with errors:
        facts = data.survey_images(recipe.data)
    with errors:
        group = make_group(recipe.launch)
    errors.raise_if_any()
    return make_plan(recipe, facts, group.ranks, composed.origin, reads_teachers)


def resolve_plan(plan: Plan, say: Say) -> Plan:
    """Return the plan with all settings resolved that depend on this machine.

    These are the micro-batch, the size of images in memory, and the duration of a budget.
    Raises RecipeError or NotReadyError if one cannot be resolved, NotDoneError if measuring fails.
    """
    return fit_budget(resolve_memory_pixels(fit_micro_batch(plan, say), say), say)
