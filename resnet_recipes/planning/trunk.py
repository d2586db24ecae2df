"""The trunk: what runs of different lengths do alike, before the cool-down of schedule=wsd."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from resnet_recipes.base.duration import Duration
from resnet_recipes.base.errors import Hint, Problem
from resnet_recipes.base.limits import IsDuration, limits_of
from resnet_recipes.methods.base import Method
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.schema import Recipe, enabled

#: Settings of the schedule that a trunk does not depend on.
_LATER = ("cooldown", "shape", "milestones")


def as_long(recipe: Recipe, other: Recipe) -> Recipe:
    """Return a recipe with the length and the cool-down of another one."""
    later = {key: getattr(other.schedule, key) for key in _LATER}
    return replace(
        recipe,
        max_duration=other.max_duration,
        scale_schedule_ratio=other.scale_schedule_ratio,
        schedule=replace(recipe.schedule, **later),
    )


def of_length(plan: Plan, epochs: Fraction) -> Plan:
    """Return the plan of the same run with another length, and without a budget."""
    recipe = plan.recipe
    recipe = replace(
        recipe,
        max_duration=f"{float(epochs):g}ep",
        scale_schedule_ratio=1.0,
        launch=replace(recipe.launch, budget=""),
    )
    return replace(plan, recipe=recipe, horizon=recipe.horizon(plan.facts.train_examples))


def durations(recipe: Recipe) -> dict[str, str]:
    """Return the durations, by key, that a trunk depends on."""
    sections: dict[str, Any] = {"schedule": recipe.schedule}
    sections |= {f"methods.{name}": method for name, method in enabled(recipe.methods).items()}
    return {
        f"{place}.{name}": getattr(section, name)
        for place, section in sections.items()
        for name, limits in limits_of(section.__class__).items()
        if any(isinstance(limit, IsDuration) for limit in limits) and name not in _LATER
    }


def chains(plans: Mapping[str, Plan]) -> dict[str, str]:
    """Return for each run, by name, the one from whose trunk it goes on, the next shorter one.

    Runs that share none are left out: they train alone, as does the first of each trunk.
    """
    before: dict[str, str] = {}
    ends: list[str] = []  # of the trunks so far
    for name, plan in sorted(plans.items(), key=lambda item: item[1].trunk):
        if not plan.trunk or plan.recipe.run.extends:
            continue
        if other := next((end for end in ends if _share_trunk(plans[end], plan)), None):
            before[name] = other
            ends.remove(other)
        ends.append(name)
    return before


def _share_trunk(began: Plan, plan: Plan) -> bool:
    return as_long(began.recipe, plan.recipe) == plan.recipe and not any(departures(began, plan))


def departures(began: Plan, plan: Plan) -> Iterator[Problem]:
    """Yield why two runs whose other settings are alike share no trunk, with what to type."""
    before = durations(began.recipe)
    for key, text in durations(plan.recipe).items():
        there, here = began.steps(before[key]), plan.steps(text)
        if there != here:
            other = f"{before[key]} takes {there:,} of the other's"
            rule = f"takes {here:,} of this run's steps, and {other}"
            yield Problem(key, text, rule, f"{key}={there}ba")
    cooldown = Duration.parse(began.recipe.schedule.cooldown)
    rest = Fraction(began.total_steps - began.trunk, began.total_steps)
    share = cooldown.value if cooldown.unit == "dur" else rest
    others = began.new_stack().methods
    end = min(began.trunk, plan.trunk)
    for name, method in plan.new_stack().methods.items():
        if _sizes(others[name], began, end) != _sizes(method, plan, end):
            rule = "gives images other sizes, before the cool-down, in runs of other lengths"
            fix = (method.late(share), Hint("in both runs, from the start"))
            yield Problem(f"methods.{name}", None, rule, fix)


def _sizes(method: Method, plan: Plan, end: int) -> list[tuple[int, int]]:
    """Return the sizes that a method gives images until step `end`, by epoch."""
    side, horizon = plan.recipe.data.train_size, plan.horizon
    return [
        (method.loaded_size(side, epoch, horizon), method.size_after(side, epoch, horizon))
        for epoch in range(-(-end // plan.steps_per_epoch))
    ]
