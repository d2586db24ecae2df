"""The same run with another length."""

from dataclasses import replace
from fractions import Fraction

from resnet_recipes.planning.plan import Plan


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
