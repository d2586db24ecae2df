"""The longest run that ends within a budget."""

from bisect import bisect
from collections.abc import Callable
from fractions import Fraction

#: Epochs from which on a length is a whole number of them.
WHOLE = 20


def longest(minutes: Callable[[Fraction], float], budget: float, limit: int) -> Fraction:
    """Return the most epochs that take at most `budget` minutes: whole ones, or tenths of a few.

    0 if a tenth takes longer. `minutes` says how long a run of some epochs takes, and hardly ever
    falls; it is called some 20 times.
    """
    tenths = bisect(
        range(1, 10 * limit + 1), budget, key=lambda count: minutes(Fraction(count, 10))
    )
    if tenths < 10 * WHOLE:
        return Fraction(tenths, 10)
    epochs = Fraction(tenths // 10)
    while minutes(epochs) > budget:  # where images grow, a little less can take longer
        epochs -= 1
    return epochs
