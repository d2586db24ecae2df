"""Find the duration of a run that fits `launch.budget` on this machine."""

from bisect import bisect
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import ceil

from resnet_recipes.base.duration import MAX_EPOCHS, parse_budget
from resnet_recipes.base.errors import Change, Fix, Hint, NotReadyError, RecipeError, Value
from resnet_recipes.base.text import Say, format_clock, format_long_time
from resnet_recipes.jobs.machine.run_time import explain_unknown_time, measure_time, predict_time
from resnet_recipes.jobs.ranks import external_launcher
from resnet_recipes.planning.estimate import RunForecast, Speeds, estimate
from resnet_recipes.planning.outline import (
    describe_duration,
    describe_published_time,
    find_published_time,
)
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.stable_phase import change_duration

#: From this number of epochs on, durations are full epochs.
MIN_FULL_EPOCHS = 20

#: Value of `evaluation.interval` for a single evaluation, at the end of a run.
END = "1dur"

#: Minutes from which on a time is printed in days or weeks.
_LONG_MINUTES = 2 * 24 * 60


def fit_budget(plan: Plan, say: Say, measures: bool = True) -> Plan:
    """Return the plan with the duration that fits its budget, if it has one.

    With `measures`, the machine is measured for a minute, unless it was measured before or another
    launcher started this rank. Raises RecipeError if the budget is too short, NotReadyError if the
    speed is unknown, NotDoneError if the measurement fails.
    """
    launch = plan.recipe.launch
    if not launch.budget:
        return plan
    measures = measures and not external_launcher.find_launcher()
    forecast = measure_time(plan, say) if measures else predict_time(plan)
    if forecast is None:
        raise NotReadyError.of(
            "budget", launch.budget, explain_unknown_time(plan), _suggest_epochs(plan)
        )
    fitted = fit_duration(plan, forecast)
    expected = estimate(fitted, forecast.speeds)
    is_same = fitted.recipe.evaluation == plan.recipe.evaluation
    also = "" if is_same else f", and evaluation.interval={END} to save time"
    other = "" if expected.other_minutes is None else ", checkpoints and startup"
    usual = f"\n    without budget=, {plan.recipe.name} trains {describe_duration(plan)}"
    usual = usual if fitted.epochs > 4 * plan.epochs else ""
    most = f", at most {format_clock(60 * expected.max_minutes)}" if forecast.when else ""
    say(
        f"budget={launch.budget} sets {describe_duration(fitted)}{also}"
        f"\n    {forecast.format_time(60 * expected.total_minutes)}{most}, with evaluations{other}"
        f"\n    {forecast.source}{usual}"
    )
    return fitted


def _suggest_epochs(plan: Plan) -> Fix:
    """Return the epochs that fit the budget at the published speed of as many GPUs."""
    result, launch, ranks = find_published_time(plan), plan.recipe.launch, plan.world_size
    if result and result.minutes and result.epochs and result.hardware.startswith(f"{ranks}x "):
        minutes = parse_budget(launch.budget, launch.price) / 60
        epochs = int(minutes * result.epochs / result.minutes)
        if find_min_epochs(plan) <= epochs <= MAX_EPOCHS:
            speed = Hint(f"at the published speed, {describe_published_time(plan)}")
            return Change(f"epochs={epochs}"), speed
    return Hint("use epochs= instead of budget=")


def fit_duration(plan: Plan, forecast: RunForecast) -> Plan:
    """Return the plan of the longest run within its recipe's budget.

    If evaluations would take longer than training, or if no run fits, the run evaluates only at its
    end. This does not apply if the user set the interval, `stop_at_top1` or `checkpoint.best`.
    Raises RecipeError if the budget is too small for `find_min_epochs`.
    """
    speeds, evaluation = forecast.speeds, plan.recipe.evaluation
    longest = _find_longest_run(plan, speeds)
    is_needed = evaluation.stop_at_top1 or plan.recipe.checkpoint.best != "off"
    is_chosen = is_needed or "evaluation.interval" in plan.origin.settings
    if not is_chosen and (not longest or estimate(longest, speeds).is_mostly_evaluation):
        recipe = replace(plan.recipe, evaluation=replace(evaluation, interval=END))
        plan = replace(plan, recipe=recipe)
        longest = _find_longest_run(plan, speeds)
    if longest:
        return longest
    launch = plan.recipe.launch
    min_epochs = find_min_epochs(plan)
    max_minutes = estimate(change_duration(plan, min_epochs), speeds).max_minutes
    suggestion = f"{ceil(max_minutes)}m" if max_minutes < 120 else f"{ceil(max_minutes / 60)}h"
    write = format_clock if max_minutes < _LONG_MINUTES else format_long_time
    clause = (
        f"is too small: the shortest sensible run is epochs={float(min_epochs):g}, which takes "
        f"up to {write(60 * max_minutes)}"
    )
    fix: list[str] = [Value(suggestion)]
    if max_minutes >= _LONG_MINUTES and not plan.recipe.model.weights:
        fix.append(Hint("the recipe finetune trains only the classifier; a GPU is much faster"))
    raise RecipeError.of("launch.budget", launch.budget, clause, tuple(fix))


def _find_longest_run(plan: Plan, speeds: Speeds) -> Plan | None:
    """Return the plan of the longest run within its recipe's budget; None if none fits."""
    launch = plan.recipe.launch
    minutes = parse_budget(launch.budget, launch.price) / 60
    epochs = find_longest(
        lambda epochs: estimate(change_duration(plan, epochs), speeds).max_minutes,
        minutes,
        find_min_epochs(plan),
        MAX_EPOCHS,
    )
    return change_duration(plan, epochs) if epochs else None


def find_longest(
    minutes: Callable[[Fraction], float], budget: float, min_epochs: Fraction, limit: int
) -> Fraction | None:
    """Return the most epochs that take at most `budget` minutes; below MIN_FULL_EPOCHS, in tenths.

    None if `min_epochs` take longer. `minutes` returns the minutes for a number of epochs; more
    epochs rarely take less. It is slow for long runs, so short runs are tried first.
    """
    durations = [
        Fraction(tenths, 10) for tenths in range(int(10 * min_epochs), 10 * MIN_FULL_EPOCHS)
    ]
    durations += map(Fraction, range(max(MIN_FULL_EPOCHS, ceil(min_epochs)), limit + 1))
    end = 1
    while end < len(durations) and minutes(durations[end]) <= budget:
        end *= 2
    count = bisect(durations, budget, hi=min(end, len(durations)), key=minutes)
    while count and minutes(durations[count - 1]) > budget:
        count -= 1  # with growing images, fewer epochs can take longer
    return durations[count - 1] if count else None


def find_min_epochs(plan: Plan) -> Fraction:
    """Return the minimum sensible epochs: one, or twice a longer warm-up in epochs or steps.

    A multiple of 1/10.
    """
    if plan.recipe.schedule.warmup.endswith("dur"):
        return Fraction(1)
    return max(Fraction(1), Fraction(ceil(20 * plan.warmup / plan.steps_per_epoch), 10))
