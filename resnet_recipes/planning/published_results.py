"""Published results of recipes and baselines, and interpolated accuracies."""

import csv
from collections.abc import Container, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.field_types import parse_texts
from resnet_recipes.run_folder.facts import Published

#: Number of ImageNet-1k training images; all results use them.
IMAGENET_IMAGES = 1_281_167

#: Largest error of interpolation, in points: each published result between two others of its
#: recipe, compared with the value interpolated without it.
INTERPOLATION_ERROR = 0.16

#: Contradictions between the sources, and the displayed values.
CONTRADICTIONS = (
    "Medium at 60.4 min is printed as 79.4% in the body of the Mosaic ResNet deep dive and as "
    "78.4% in its summary; 78.4% is shown, since the text calls it equal to FFCV's 78.4%.",
    "Hot's 81.0% is printed with 880 min in the text and as 81.03% with 980 min (810 epochs) in "
    "Table 6; both are shown.",
    "timm A3 on AWS is printed with 334 min, and with 3.8 times Mild's 56 min; 334 min is shown.",
    "Table 5 of the deep dive prints 76.033% where its text has 76.33%; the text is shown.",
    "Mild's 23.8 min include evaluations and a cold first epoch (MLPerf's clock). Its 25.3 min are "
    "steady-state training time. Do not subtract the two. DAWNBench uses a third clock.",
    "FFCV's times are given on both clocks: wall time includes an evaluation after every epoch.",
)


@dataclass(frozen=True)
class PublishedResult:
    """A published accuracy with its time or speed; None or "" if the source does not give it."""

    recipe: str  # a recipe, its prototype, nvidia_mlperf (closed division) or composer_2021
    label: str  # variant, if the recipe is ambiguous
    epochs: int | None
    top1_percent: float | None
    minutes: float | None
    clock: str  # clock of the minutes: steady | mlperf | wall | dawnbench
    images_per_second: float | None
    hardware: str
    source: str
    note: str


@cache
def read_published() -> tuple[PublishedResult, ...]:
    """Return all published results, in order of recipe and duration."""
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as file:
        return tuple(parse_texts(PublishedResult, row) for row in csv.DictReader(file))


class Accuracy(NamedTuple):
    """An accuracy and its source."""

    top1: float  # percent
    source: str  # for example, "published", or "interpolated, within 0.16"


def estimate_accuracy(results: Sequence[Published], epochs: float) -> Accuracy | None:
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
    results: Sequence[Published], top1: float, excluded: Container[Fraction]
) -> int | None:
    """Return the fewest epochs, not `excluded`, with at least this accuracy; None if unknown."""
    durations = [result.epochs for result in results if result.epochs]
    for epochs in range(min(durations, default=0), max(durations, default=-1) + 1):
        accuracy = None if epochs in excluded else estimate_accuracy(results, epochs)
        if accuracy and accuracy.top1 >= top1:
            return epochs
    return None
