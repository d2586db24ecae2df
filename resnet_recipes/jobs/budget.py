"""`launch.budget`: the length that it stands for on this machine."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from resnet_recipes import data
from resnet_recipes.base.duration import Duration, budget_seconds
from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.base.text import clock_time
from resnet_recipes.estimating.budget import longest
from resnet_recipes.estimating.estimate import Estimate, Prediction, estimate
from resnet_recipes.jobs import external
from resnet_recipes.jobs.fit import fitted
from resnet_recipes.jobs.group import group_of
from resnet_recipes.jobs.measure import measured
from resnet_recipes.jobs.prediction import UNKNOWN, predicted
from resnet_recipes.network.teacher import taught
from resnet_recipes.planning.course import course_of
from resnet_recipes.planning.feasible import MAX_EPOCHS
from resnet_recipes.planning.length import of_length
from resnet_recipes.planning.plan import Plan, make_plan

if TYPE_CHECKING:  # ranks never import Hydra
    from resnet_recipes.recipe.compose import Composed


def plan_here(wanted: "Composed", say: Callable[[str], None]) -> tuple["Composed", Plan]:
    """Return a recipe and the plan of its run, both as on the devices of this machine."""
    recipe = wanted.recipe
    facts, group = data.measure(recipe.data), group_of(recipe.launch)
    plan = taught(make_plan(recipe, facts, group.ranks, wanted.typed))
    return settled(wanted, plan, say)


def settled(wanted: "Composed", plan: Plan, say: Callable[[str], None]) -> tuple["Composed", Plan]:
    """Return a recipe and its plan with numbers in place of all that this machine decides.

    They are a micro-batch of auto, and the length of a budget.
    """
    return within_budget(*fitted(wanted, plan, say), say)


def within_budget(
    wanted: "Composed", plan: Plan, say: Callable[[str], None], measures: bool = True
) -> tuple["Composed", Plan]:
    """Return a recipe and its plan with the length of its budget, if it has one.

    `measures` says whether the machine may be measured, for a minute, if it was not before. Raises
    RecipeError if the budget is too short, NotReadyError if no time is known.
    """
    launch = plan.recipe.launch
    if not launch.budget:
        return wanted, plan
    measures = measures and not external.launcher()
    found = measured(plan, say) if measures else predicted(plan)
    if found is None:
        raise NotReadyError.of("budget", launch.budget, UNKNOWN, "or give epochs=")
    plan = within(plan, found)
    made = estimate(course_of(plan), found.speeds)
    say(
        f"budget={launch.budget} is {plan.recipe.max_duration.removesuffix('ep')} epochs: "
        f"{clock_time(60 * made.total_minutes)}, at most {clock_time(60 * made.most)}, with "
        f"evaluations, checkpoints and start-up; {found.source}"
    )
    return replace(wanted, recipe=plan.recipe), plan


def within(plan: Plan, found: Prediction) -> Plan:
    """Return the plan of the longest run that ends within its recipe's budget.

    Raises RecipeError if that is too short for a warm-up.
    """
    launch = plan.recipe.launch
    minutes = budget_seconds(launch.budget, launch.price) / 60

    def made(epochs: Fraction) -> Estimate:
        return estimate(course_of(of_length(plan, epochs)), found.speeds)

    least = shortest(plan)
    epochs = longest(lambda epochs: made(epochs).most, minutes, least, MAX_EPOCHS)
    if epochs is None:
        most = made(least).most
        enough = f"{ceil(most)}m" if most < 120 else f"{ceil(most / 60)}h"
        rule = (
            f"is too little: epochs={float(least):g}, the least that makes sense with a warm-up of "
            f"{plan.recipe.schedule.warmup}, may take {clock_time(60 * most)}"
        )
        raise RecipeError.of("budget", launch.budget, rule, f"budget={enough}")
    return of_length(plan, epochs)


def shortest(plan: Plan) -> Fraction:
    """Return the fewest epochs that make sense, in tenths: one, or twice those of the warm-up."""
    warmup = Duration.parse(plan.recipe.schedule.warmup)
    if warmup.unit == "dur":
        return Fraction(1)
    return max(Fraction(1), Fraction(ceil(20 * plan.warmup / plan.steps_per_epoch), 10))
