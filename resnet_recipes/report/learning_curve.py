"""Predict the gain from more images, from runs on fractions of the images."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from resnet_recipes.base.text import format_number
from resnet_recipes.report.comparison import SeedGroup
from resnet_recipes.report.paired_difference import NORMAL_QUANTILE
from resnet_recipes.run_folder.runs import read_image_facts

if TYPE_CHECKING:
    import numpy as np

_MIN_SIZES = 3  # minimum image counts for a curve


def describe_learning_curves(seed_groups: Iterable[SeedGroup]) -> Iterator[str]:
    """Yield the predicted gain and cost of twice the images, from runs on fractions of them."""
    import numpy as np

    series: dict[Any, list[tuple[int, float, float, SeedGroup]]] = defaultdict(list)
    for group in seed_groups:
        facts = read_image_facts(group.runs[0].folder)
        match facts, group.mean("top1_percent"):
            case {"train_examples": int(count), "eval_examples": int(val)}, float(mean) if val:
                error = (val * (1 - mean / 100) + 1) / (val + 2)  # never 0 or 1
                variance = 1e4 * error * (1 - error) / val
                variance += (group.noise or 0.0) ** 2 / len(group.top1)
                settings = group.settings | {"data.share": ""}
                key = facts.get("eval_digest"), *sorted(settings.items())
                series[key].append((count, mean, variance, group))
    for points in series.values():
        points.sort(key=lambda point: point[0])
        counts, means, variances, groups = zip(*points, strict=True)
        if len({*counts}) < _MIN_SIZES:
            continue
        gain, error = fit_gain(*map(np.array, (counts, means, variances)))
        has_noise = all(group.noise is not None for group in groups)
        caveat = "" if has_noise else " The interval excludes seed noise: a size has only one run."
        cost = f"{counts[-1]:,} more photographs"
        if pflops := groups[-1].mean("pflops"):
            after = pflops * (1 + groups[-1].settings.get("max_duration", "").endswith("ep"))
            cost += (
                f", and training takes {format_number(after)} PFLOPs (now {format_number(pflops)})"
            )
        yield (
            f"{counts[0]:,} to {counts[-1]:,} training images: {means[0]:.2f}% to "
            f"{means[-1]:.2f}% top-1. Twice as many would gain about {gain:+.2f} points, 95% "
            f"interval {gain - error:+.2f} to {gain + error:+.2f}.{caveat} The cost: {cost}."
        )


def fit_gain(
    images: "np.ndarray", top1: "np.ndarray", variances: "np.ndarray"
) -> tuple[float, float]:
    """Return the top-1 gain from doubling the last number of images, and its error, in points.

    Fits error = a + b n^-c to n images by weighted least squares, for each c from 0.2 to 1. A value
    of 0.5 is common (Hoiem et al., 2021, arXiv:2010.11029). The gain is the mean over these fits,
    weighted by likelihood, because few sizes do not determine c. The error is the half-width of the
    95% interval, including this uncertainty.
    """
    import numpy as np

    fits = []
    for power in np.linspace(0.2, 1, 17):
        x = images**-power
        fall = images[-1] ** -power * (1 - 2**-power)
        line, covariance = np.polyfit(x, 100 - top1, 1, w=variances**-0.5, cov="unscaled")
        misfit = np.sum((100 - top1 - np.polyval(line, x)) ** 2 / variances)  # chi squared
        fits.append((line[0] * fall, covariance[0, 0] * fall**2, misfit))
    gains, gain_variances, misfits = np.transpose(fits)
    likelihoods = np.exp((misfits.min() - misfits) / 2)
    gain = np.average(gains, weights=likelihoods)
    variance = np.average(gain_variances + (gains - gain) ** 2, weights=likelihoods)
    # if no power law fits, the noise is larger than assumed
    return gain, NORMAL_QUANTILE * (variance * max(1.0, misfits.min() / (len(images) - 2))) ** 0.5
