"""Estimate the time of a whole run from some of its epochs, by the papers' rule."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from resnet_recipes.measure.estimate import Speeds

#: File that lists the epochs to time, or says how many of the last steps to train; ranks do
#: nothing else if it is in their folder.
SAMPLE = "sample.json"

#: File to which rank 0 writes the training seconds of each.
SECONDS = "seconds.json"


def is_sample(folder: Path) -> bool:
    """Return whether a run folder is that of a measurement, which is not continued."""
    return (folder / SAMPLE).exists()


def sampled(sizes: Sequence[int], count: int) -> list[int]:
    """Return `count` epochs to time, in order, of a run with images of `sizes` by epoch.

    At least 3, if it has as many.

    They are the first ones. With several image sizes they are the first two, since the first fills
    caches and is counted as long as the second, and one epoch at each of some other sizes, from the
    largest down.
    """
    others = sorted(set(sizes) - set(sizes[:2]), reverse=True)
    if not others:
        return list(range(min(count, len(sizes))))
    last = {size: epoch for epoch, size in enumerate(sizes)}
    picks = min(max(1, count - 2), len(others))
    spread = {others[place * (len(others) - 1) // max(1, picks - 1)] for place in range(picks)}
    return sorted({0, 1, *(last[size] for size in spread)})


def whole(sizes: Sequence[int], timed: dict[int, float]) -> float:
    """Return the training seconds of all epochs, the first timed as the second.

    Interpolate sizes by area.
    """
    replaced = timed | {0: timed[1]} if 1 in timed else timed
    by_size = defaultdict(list)
    for epoch, seconds in replaced.items():
        by_size[sizes[epoch]].append(seconds)
    speeds = Speeds({size: (mean(found),) for size, found in by_size.items()}, None, 1.0, 1)
    return sum(replaced.get(epoch, speeds.seconds_at(size)[1]) for epoch, size in enumerate(sizes))
