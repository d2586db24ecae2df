"""The shortest sensible run, and the longest run within a budget."""

from fractions import Fraction

import pytest

from resnet_recipes.jobs.machine.budget import find_longest, find_min_epochs
from tests.shared.plans import plan_recipe
from tests.shared.tables import parse_rows


@pytest.mark.parametrize(
    ("warmup", "epochs"), parse_rows("0ep | 1\n2ba | 1\n5ba | 1.3\n1ep | 2\n0.5dur | 1")
)
def test_shortest_run_is_twice_its_warmup_rounded_up(warmup, epochs):
    """An epoch has eight steps, so twice 5ba are 1.25 epochs."""
    assert find_min_epochs(plan_recipe(f"schedule.warmup={warmup}")) == Fraction(epochs)


@pytest.mark.parametrize("least", [Fraction(1, 10), Fraction(12)])
@pytest.mark.parametrize("budget", [0.5, 9.0, 70.5, 205.0, 216.0, 1e9])
def test_budget_epochs_is_the_longest_that_fits(budget, least):
    def minutes(epochs):
        return 5.0 + 7.0 * float(epochs) + int(epochs)  # evaluations add steps to the curve

    tenths = [count / 10 for count in range(1, 501)]
    durations = [epochs for epochs in tenths if epochs < 20 or epochs == int(epochs)]
    fitting = [epochs for epochs in durations if minutes(epochs) <= budget]
    most = max((epochs for epochs in fitting if epochs >= least), default=None)
    assert find_longest(minutes, budget, least, 50) == (most and Fraction(str(most)))


def test_budget_estimates_only_durations_that_may_fit():
    asked = []
    find_longest(lambda epochs: asked.append(epochs) or float(epochs), 5.0, Fraction(3), 50)
    assert min(asked) >= 3
    assert max(asked) < 7


def test_budget_rounds_down_to_full_epochs():
    """21.9 epochs fit, but are no full epochs; 21 and 20, with larger images, do not fit."""

    def minutes(epochs: Fraction) -> float:
        return float(epochs) + 5.0 * (epochs in (20, 21))

    assert find_longest(minutes, 21.95, Fraction(1), 50) == Fraction(199, 10)
