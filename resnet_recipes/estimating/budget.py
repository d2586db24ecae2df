"""The longest run that ends within a budget."""

from bisect import bisect
from collections.abc import Callable
from fractions import Fraction

#: Epochs from which on a length is a whole number of them.
WHOLE = 20


def longest(
    minutes: Callable[[Fraction], float], budget: float, least: Fraction, limit: int
) -> Fraction | None:
    """Return the most epochs that take at most `budget` minutes: whole ones, or tenths of a few.

    None if `least`, in tenths, take longer. `minutes` says how long a run of some epochs takes, and
    hardly ever falls; it is called some 20 times.
    """
    tenths = range(int(10 * least), 10 * limit + 1)
    fitting = bisect(tenths, budget, key=lambda count: minutes(Fraction(count, 10)))
    if not fitting:
        return None
    epochs = Fraction(tenths[fitting - 1], 10)
    if epochs < WHOLE:
        return epochs
    epochs = Fraction(int(epochs))
    while minutes(epochs) > budget:  # where images grow, a little less can take longer
        epochs -= 1
    return epochs
