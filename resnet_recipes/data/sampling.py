"""How often an epoch shows each class: as often as it occurs, equally often, or between the two."""

from collections.abc import Iterator

import numpy as np

from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.order import Permute

#: Separates this generator from all others seeded with the run's seed and an epoch.
_SAMPLING = 0x73616D70

FEW = 20  # images of a class below which its accuracy is mostly chance


def sampled(labels: np.ndarray, share: float) -> Permute:
    """Return an order with class c in proportion to its images to the power of 1 - `share`.

    0 is natural, 1 equal for all classes that have images. An epoch keeps its length. Within a
    class, every image comes equally often, but for one: which ones come once more is drawn anew in
    each epoch. A function of (seed, epoch), so it is the same on every rank and after a resume.
    Costs 0.3 s an epoch for ImageNet.
    """
    members = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    starts = np.cumsum(counts) - counts
    weights = np.where(counts > 0, np.maximum(counts, 1.0) ** (1.0 - share), 0.0)
    wanted = weights / weights.sum()

    def order(seed: int, epoch: int, examples: int) -> np.ndarray:
        rng = np.random.default_rng((seed, epoch, 0, _SAMPLING))
        # Each class gets the whole number just below or above its expectation, and all together
        # exactly the epoch.
        ends = np.floor(np.cumsum(wanted) * examples + rng.random())
        ends[-1] = examples
        quotas = np.diff(ends, prepend=0).astype(np.int64)
        drawn = [
            _of_class(rng, members[start : start + count], quota)
            for start, count, quota in zip(starts, counts, quotas, strict=True)
            if quota
        ]
        return rng.permutation(np.concatenate(drawn))

    return order


def _of_class(rng: np.random.Generator, images: np.ndarray, quota: int) -> np.ndarray:
    """Return `quota` of a class's images, each as often as any other, or once more."""
    rounds, rest = divmod(quota, len(images))
    return np.concatenate([np.tile(images, rounds), rng.permutation(images)[:rest]])


def imbalance(counts: np.ndarray, config: DataConfig) -> Iterator[str]:
    """Yield a note if the largest class has at least three times the images of the smallest."""
    most, least = int(counts.max()), int(counts[counts > 0].min())
    if most < 3 * least:
        return
    few = int(((counts > 0) & (counts < FEW)).sum())
    rare = f"; {few} of them fewer than {FEW}" if few else ""
    shown = f"data.sampling={config.sampling} shows rare ones more often than they occur"
    if config.sampling == "natural":
        shown = "data.sampling=sqrt shows rare ones more often"
        shown += ", 'methods.class_weights={}' weighs them more"
    yield f"classes have from {least:,} to {most:,} training images{rare}: {shown}"
