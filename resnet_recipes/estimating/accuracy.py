"""The accuracy that a recipe's authors reached, by the length of the run, and between lengths."""

from collections.abc import Sequence
from typing import NamedTuple

from resnet_recipes.run_folder.facts import Published

#: The most, in points, by which any published result between two others of its recipe differs from
#: what is interpolated without it.
ERROR = 0.16


class Accuracy(NamedTuple):
    """An accuracy, and how it is known."""

    top1: float  # percent
    source: str  # in words


def of_length(results: Sequence[Published], epochs: float) -> Accuracy | None:
    """Return what was published for a length, or else lies on the line between its neighbours.

    The line is straight over 1 / epochs, which fits the published curves better than epochs or
    their logarithm. None outside of them: nobody knows.
    """
    known = {result.epochs: result.top1 for result in reversed(results) if result.epochs}
    if epochs in known:
        return Accuracy(known[int(epochs)], "published")
    below = max((length for length in known if length < epochs), default=0)
    above = min((length for length in known if length > epochs), default=0)
    if not (below and above):
        return None
    share = (1 / below - 1 / epochs) / (1 / below - 1 / above)
    top1 = known[below] + share * (known[above] - known[below])
    return Accuracy(top1, f"interpolated, within {ERROR}")


def shortest(results: Sequence[Published], top1: float) -> int | None:
    """Return the fewest whole epochs with at least this accuracy; None if it is not known."""
    lengths = [result.epochs for result in results if result.epochs]
    for epochs in range(min(lengths, default=0), max(lengths, default=-1) + 1):
        if (found := of_length(results, epochs)) and found.top1 >= top1:
            return epochs
    return None
