"""The longest run, against trying every length."""

import pytest

from resnet_recipes.estimating.budget import longest


@pytest.mark.parametrize("budget", [0.5, 9.0, 70.5, 205.0, 216.0, 1e9])
def test_no_longer_run_fits(budget):
    def minutes(epochs):
        return 5.0 + 7.0 * float(epochs) + int(epochs)  # evaluations come in steps

    tenths = [count / 10 for count in range(1, 501)]
    lengths = [epochs for epochs in tenths if epochs < 20 or epochs == int(epochs)]
    fitting = [epochs for epochs in lengths if minutes(epochs) <= budget]
    assert float(longest(minutes, budget, 50)) == max(fitting, default=0)
