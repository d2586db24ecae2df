"""The papers' rule: speeds from some epochs of a run that were trained for real."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean

from resnet_recipes.estimating.estimate import Course, Speeds


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


def speeds_of(course: Course, timed: Mapping[int, float], evaluation: float | None) -> Speeds:
    """Return the speeds of a run whose epochs took these seconds, by number, counted from 0.

    The first is timed as the second. `evaluation` are images per second, if one was timed.
    """
    found = defaultdict(list)
    for epoch, seconds in {**timed, 0: timed[1]}.items():
        found[course.sides[epoch]].append(seconds / course.images[epoch])
    step = {side: (mean(each),) for side, each in found.items()}
    # the parts of a step were not timed
    return Speeds(step, evaluation, limits=dict.fromkeys(course.sides, "?"))
