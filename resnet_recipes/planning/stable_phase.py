"""The stable phase of schedule=wsd: the steps before the cooldown, equal for all durations."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from resnet_recipes.base.duration import Duration
from resnet_recipes.base.errors import Change, Hint, Problem
from resnet_recipes.base.limits import IsDuration, get_limits
from resnet_recipes.methods.base import Method
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.schema import Recipe, get_enabled

#: Schedule settings that take effect after the stable phase.
_COOLDOWN_SETTINGS = ("cooldown", "shape", "milestones")


def copy_duration(recipe: Recipe, other: Recipe) -> Recipe:
    """Return a recipe with the duration and the cooldown of another recipe."""
    cooldown = {key: getattr(other.schedule, key) for key in _COOLDOWN_SETTINGS}
    return replace(
        recipe,
        max_duration=other.max_duration,
        scale_schedule_ratio=other.scale_schedule_ratio,
        schedule=replace(recipe.schedule, **cooldown),
    )


def change_duration(plan: Plan, epochs: Fraction) -> Plan:
    """Return the plan with another duration and without a budget.

    The duration is in steps if `epochs` is not a short decimal number.
    """
    recipe = plan.recipe
    duration = f"{float(epochs):g}ep"
    if Duration.parse(duration).value != epochs:
        duration = f"{int(epochs * plan.steps_per_epoch)}ba"
    recipe = replace(
        recipe,
        max_duration=duration,
        scale_schedule_ratio=1.0,
        launch=replace(recipe.launch, budget=""),
    )
    return replace(plan, recipe=recipe, horizon=recipe.horizon(plan.facts.train_examples))


def find_durations(recipe: Recipe) -> dict[str, str]:
    """Return the durations that determine the stable phase, by key."""
    sections: dict[str, Any] = {"schedule": recipe.schedule}
    sections |= {f"methods.{name}": method for name, method in get_enabled(recipe.methods).items()}
    return {
        f"{prefix}.{name}": getattr(section, name)
        for prefix, section in sections.items()
        for name, limits in get_limits(section.__class__).items()
        if any(isinstance(limit, IsDuration) for limit in limits) and name not in _COOLDOWN_SETTINGS
    }


def find_chains(plans: Mapping[str, Plan]) -> dict[str, str]:
    """Map each run to the next shorter run whose stable phase it continues, by name.

    Runs without such a run are omitted: they train from the start.
    """
    parents: dict[str, str] = {}
    longest: list[str] = []  # the longest run of each stable phase so far
    for name, plan in sorted(plans.items(), key=lambda item: item[1].stable_steps):
        if not plan.stable_steps or plan.recipe.run.extends:
            continue
        if parent := next((run for run in longest if _can_extend(plans[run], plan)), None):
            parents[name] = parent
            longest.remove(parent)
        longest.append(name)
    return parents


def _can_extend(parent: Plan, plan: Plan) -> bool:
    is_same_recipe = copy_duration(parent.recipe, plan.recipe) == plan.recipe
    return is_same_recipe and not any(find_phase_problems(parent, plan))


def find_phase_problems(parent: Plan, plan: Plan) -> Iterator[Problem]:
    """Yield the differences between the stable phases of two runs with equal other settings."""
    durations = find_durations(parent.recipe)
    for key, duration in find_durations(plan.recipe).items():
        parent_steps = parent.steps(durations[key])
        steps = plan.steps(duration)
        if parent_steps != steps:
            other = f"{durations[key]} takes {parent_steps:,} of the other's"
            clause = f"takes {steps:,} of this run's steps, and {other}"
            yield Problem(key, duration, clause, Change(f"{key}={parent_steps}ba"))
    cooldown = Duration.parse(parent.recipe.schedule.cooldown)
    remaining = Fraction(parent.total_steps - parent.stable_steps, parent.total_steps)
    fraction = cooldown.value if cooldown.unit == "dur" else remaining
    methods = parent.new_stack().methods
    end = min(parent.stable_steps, plan.stable_steps)
    for name, method in plan.new_stack().methods.items():
        if _list_sizes(methods[name], parent, end) != _list_sizes(method, plan, end):
            clause = "uses other image sizes before the cooldown in runs of other durations"
            fix = (method.format_late_override(fraction), Hint("in both runs, from the start"))
            yield Problem(f"methods.{name}", None, clause, fix)


def _list_sizes(method: Method, plan: Plan, end: int) -> list[tuple[int, int]]:
    """Return the image sizes that a method uses until step `end`, by epoch."""
    image_size, horizon = plan.recipe.data.train_size, plan.horizon
    return [
        (
            method.loaded_size(image_size, epoch, horizon),
            method.size_after(image_size, epoch, horizon),
        )
        for epoch in range(-(-end // plan.steps_per_epoch))
    ]
