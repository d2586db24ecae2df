"""Training orders that match the layout of a .beton file on disk."""

import numpy as np

from resnet_recipes.base.errors import Problem
from resnet_recipes.data.beton.file import Beton
from resnet_recipes.data.memory import available_memory
from resnet_recipes.data.order import Permute

#: Pages whose samples are shuffled together. A constant, because all ranks must arrive at the same
#: order.
WINDOW = 256

#: Keeps these generators apart from all others that are seeded with the run's seed and an epoch.
_PAGES = 0x70616765


def quasi_random(beton: Beton) -> Permute:
    """Return an order of training that needs only a few GB of the file in memory at a time.

    It is a function (seed, epoch, examples) -> permutation.

    Pages come in random order, the samples of 256 pages at a time (2 GiB; 14 thousand of ImageNet's
    images) in random order among them. All ranks of a machine go through the same pages together
    and share them through the page cache, so their number does not matter.
    """
    pages = np.unique(beton.starts // beton.page_size, return_inverse=True)[1]

    def order(seed: int, epoch: int, examples: int) -> np.ndarray:
        rng = np.random.default_rng((seed, epoch, 0, _PAGES))
        window = rng.permutation(pages.max() + 1)[pages] // WINDOW
        return np.lexsort((rng.random(examples), window))

    return order


def quasi_random_problem(beton: Beton) -> Problem | None:
    """Return why this machine cannot read the file in quasi-random order; None if it can."""
    # one window in use, the next on its way
    needed, free = 2 * WINDOW * beton.page_size, available_memory()
    if needed > free and beton.content.size > free:
        rule = (
            f"needs {needed / 1e9:.1f} GB of memory for {2 * WINDOW} pages of {beton.path.name}, "
            f"and {free / 1e9:.1f} GB are free"
        )
        return Problem(
            "data.order",
            "quasi_random",
            rule,
            "data.order=random needs no more than the batches, but reads in small pieces",
        )
    if stored_by_class(beton):
        rule = (
            f"would make batches of a few classes each: {beton.path.name} is stored class by class"
        )
        return Problem(
            "data.order",
            "quasi_random",
            rule,
            "convert it again: the order is shuffled by default;  or data.order=random",
        )
    return None


def stored_by_class(beton: Beton) -> bool:
    """Return whether neighbours in the file are mostly of one class, unlike in a shuffled file."""
    classes = len(np.unique(beton.labels))
    if classes < 2 or len(beton) < 2 * classes:
        return False
    alike = np.mean(beton.labels[1:] == beton.labels[:-1])
    return bool(alike > (1 + np.mean(np.bincount(beton.labels)[beton.labels]) / len(beton)) / 2)
