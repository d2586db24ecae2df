"""What the authors of recipes and baselines published, with a source for each number."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: Training images of ImageNet-1k, which all results are for.
IMAGENET_IMAGES = 1_281_167

#: Where the sources contradict each other, and what was decided.
CONTRADICTIONS = (
    "Medium at 60.4 min is printed as 79.4 % in the body of the Mosaic ResNet deep dive and as "
    "78.4 % in its summary; 78.4 % is shown, since the text calls it equal to FFCV's 78.4 %.",
    "Hot's 81.0 % is printed with 880 min in the text and as 81.03 % with 980 min (810 epochs) in "
    "Table 6; both are shown.",
    "timm A3 on AWS took 334 min, but next to it 3.8 times Mild's 56 min is printed; the "
    "minutes are shown.",
    "Table 5 of the deep dive prints 76.033 % where its text has 76.33 %; the text is shown.",
    "Mild's 23.8 min run on MLPerf's clock (evaluations and a cold first epoch count), 25.3 min on "
    "the papers' clock; the two must not be subtracted. DAWNBench's clock is a third.",
    "FFCV's times are given on both clocks: wall time includes an evaluation after every epoch.",
)


@dataclass(frozen=True)
class PublishedResult:
    """One published accuracy, its time or speed; None or "" where the source does not say."""

    recipe: str  # ours, nvidia_mlperf (closed division, MXNet) or composer_2021
    label: str  # which variant, if the recipe does not say
    epochs: int | None
    top1_percent: float | None
    minutes: float | None
    clock: str  # papers | mlperf | wall | dawnbench: what the minutes include
    images_per_second: float | None
    hardware: str
    source: str
    note: str


@cache
def published() -> tuple[PublishedResult, ...]:
    """Return all published results, by recipe and length."""
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as file:
        return tuple(map(_result, csv.DictReader(file)))


def _result(row: dict[str, str]) -> PublishedResult:
    def number(key: str) -> float | None:
        return float(row[key]) if row[key] else None

    epochs = number("epochs")
    return PublishedResult(
        row["recipe"],
        row["label"],
        None if epochs is None else int(epochs),
        number("top1_percent"),
        number("minutes"),
        row["clock"],
        number("images_per_second"),
        row["hardware"],
        row["source"],
        row["note"],
    )
