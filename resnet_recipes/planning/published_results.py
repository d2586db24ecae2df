"""Published results of the recipes, and interpolated accuracies."""

from collections.abc import Container, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any, NamedTuple

from resnet_recipes.base.field_types import convert
from resnet_recipes.recipe.library import find_packaged_folder
from resnet_recipes.recipe.strict_yaml import load
from resnet_recipes.run_folder.facts import PublishedResult

#: Number of ImageNet-1k training images; all results use them.
IMAGENET_IMAGES = 1_281_167

#: Largest error of interpolation, in points: each published result between two others of its
#: recipe, compared with the value interpolated without it.
INTERPOLATION_ERROR = 0.16


def list_published_results() -> list[dict[str, Any]]:
    """Return the published results of all packaged recipes, each with its recipe."""
    return [
        {"recipe": path.stem} | asdict(result)
        for path in sorted(find_packaged_folder().glob("*.yaml"))
        for result in convert(load(path).tree.get("published", []), list[PublishedResult])
    ]


class Accuracy(NamedTuple):
    """An accuracy and its source."""

    top1: float  # percent
    source: str  # for example, "published", or "interpolated, within 0.16"


def estimate_accuracy(results: Sequence[PublishedResult], epochs: float) -> Accuracy | None:
    """Return the published accuracy for a number of epochs, or interpolate it.

    The interpolation is linear in 1 / epochs, which fits the published curves better than epochs or
    their logarithm. None outside of the published range.
    """
    accuracy_at = {result.epochs: result.top1 for result in reversed(results) if result.epochs}
    if epochs in accuracy_at:
        return Accuracy(accuracy_at[int(epochs)], "published")
    durations = sorted(accuracy_at, reverse=True)
    if not (durations and durations[-1] < epochs < durations[0]):
        return None
    import numpy as np

    accuracies = [accuracy_at[duration] for duration in durations]
    top1 = float(np.interp(1 / epochs, [1 / duration for duration in durations], accuracies))
    return Accuracy(top1, f"interpolated, within {INTERPOLATION_ERROR}")


def find_epochs_for_accuracy(
    results: Sequence[PublishedResult], top1: float, excluded: Container[Fraction]
) -> int | None:
    """Return the fewest epochs, not `excluded`, with at least this accuracy; None if unknown."""
    durations = [result.epochs for result in results if result.epochs]
    for epochs in range(min(durations, default=0), max(durations, default=-1) + 1):
        accuracy = None if epochs in excluded else estimate_accuracy(results, epochs)
        if accuracy and accuracy.top1 >= top1:
            return epochs
    return None
