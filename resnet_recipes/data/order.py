"""The reading order of examples per rank, as a function of seed, epoch and step."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from resnet_recipes.base.duration import count_steps_per_epoch
from resnet_recipes.base.schedule import get_epoch_value
from resnet_recipes.data.base import Batching, DataConfig

#: Part of the seed of the order, so that no other generator repeats its numbers.
_ORDER_SEED = 0x6F726472

#: (seed, epoch, examples) -> the training order of one epoch, int64 [examples]: a permutation, or
#: an order that repeats some images and omits others.
EpochOrder = Callable[[int, int, int], np.ndarray]


class BatchOrder(NamedTuple):
    """A batch, or some rows of it, that a rank still has to read.

    Seed, crop epoch, index and copy determine each image's crop.
    """

    crop_epoch: int  # epoch, or with stored soft labels its position in their cycle
    indices: np.ndarray  # int64 [N], positions in the sorted list of files
    # int64 [N], earlier uses of the image in this epoch
    copies: np.ndarray
    image_size: int  # height and width of the images
    first: int = 0  # position of the first row in the batch

    def split(self, size: int) -> Iterator["BatchOrder"]:
        """Split the order into parts of at most `size` rows."""
        for first in range(0, len(self.indices), size):
            rows = slice(first, first + size)
            yield self._replace(
                indices=self.indices[rows], copies=self.copies[rows], first=self.first + first
            )


def shuffle(seed: int, epoch: int, examples: int) -> np.ndarray:
    """Return the training order of one epoch: a permutation, int64 [examples].

    Takes 20 ms for ImageNet.
    """
    return np.random.default_rng((seed, epoch, 0, _ORDER_SEED)).permutation(examples)


def generate_train_batches(
    config: DataConfig,
    batching: Batching,
    examples: int,
    first_step: int,
    order_epoch: EpochOrder,
) -> Iterator[BatchOrder]:
    """Yield this rank's batches endlessly, from `first_step` on."""
    steps = count_steps_per_epoch(examples, batching.global_size)
    epoch, first = divmod(first_step, steps)
    while True:
        order = order_epoch(batching.seed, epoch, examples)
        before = count_occurrences(order)
        image_size = get_epoch_value(epoch, batching.train_sizes or [config.train_size])
        crop_epoch = epoch % batching.soft_labels.epochs if batching.soft_labels else epoch
        for step in range(first, steps):
            positions = _find_positions(batching, step, config.repeats)
            rows = positions // config.repeats
            copies = before[rows] + positions % config.repeats
            yield BatchOrder(crop_epoch, order[rows], copies, image_size)
        epoch += 1
        first = 0


def generate_epoch_batches(
    config: DataConfig, batching: Batching, examples: int, epoch: int
) -> Iterator[BatchOrder]:
    """Yield this rank's blocks of all images of an epoch, in index order.

    All blocks have the same size; the last block repeats images. A single image would be computed
    differently, so its outputs would not be bit-identical.
    """
    image_size = get_epoch_value(epoch, batching.train_sizes or [config.train_size])
    starts = range(batching.rank * batching.rank_size, examples, batching.global_size)
    for copy in range(config.repeats):
        for start in starts:
            block = np.arange(batching.rank_size) + min(start, examples - batching.rank_size)
            yield BatchOrder(epoch, block, np.full_like(block, copy), image_size)


def count_occurrences(order: np.ndarray) -> np.ndarray:
    """Return how often each index occurred earlier in an epoch's order: int64 [N]."""
    if np.bincount(order).max() == 1:
        return np.zeros_like(order)
    by_index = np.argsort(order, kind="stable")
    ordered = order[by_index]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    firsts = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    occurrences = np.empty_like(order)
    occurrences[by_index] = np.arange(len(order)) - firsts
    return occurrences


def _find_positions(batching: Batching, step: int, repeats: int) -> np.ndarray:
    """Return this rank's positions in an order where each image occurs `repeats` times in a row.

    Copies of an image go to different micro-batches, as the samplers of timm and torchvision assign
    them to ranks with one micro-batch each. So neither BatchNorm statistics nor MixUp see two
    copies of an image, if avoidable.
    """
    positions = np.arange(step * batching.global_size, (step + 1) * batching.global_size)
    if repeats > 1:
        positions = positions.reshape(-1, batching.groups).T.ravel()
    return positions[batching.rank * batching.rank_size : (batching.rank + 1) * batching.rank_size]


def generate_eval_batches(
    config: DataConfig, batching: Batching, indices: np.ndarray
) -> Iterator[BatchOrder]:
    """Yield evaluation examples in batches; the last one may be shorter."""
    starts = range(0, len(indices), batching.eval_size)
    split = (indices[start : start + batching.eval_size] for start in starts)
    return (BatchOrder(0, part, np.zeros_like(part), config.eval_size) for part in split)


#: Part of the seed of class sampling, so that no other generator repeats its numbers.
_SAMPLING_SEED = 0x73616D70


def make_balanced_order(labels: np.ndarray, balance: float) -> EpochOrder:
    """Return a function that samples a class in proportion to its images ** (1 - `balance`).

    0 is natural, 1 is equal for all classes with images. The size of an epoch does not change.
    Within a class, image counts differ by at most one: every epoch chooses the images that occur
    one more time. The order is a function of (seed, epoch), so it is the same on every rank and
    after a resume. Takes 0.3 s per epoch for ImageNet.
    """
    members = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    starts = np.cumsum(counts) - counts
    weights = np.where(counts > 0, np.maximum(counts, 1.0) ** (1.0 - balance), 0.0)
    probabilities = weights / weights.sum()

    def order(seed: int, epoch: int, examples: int) -> np.ndarray:
        rng = np.random.default_rng((seed, epoch, 0, _SAMPLING_SEED))
        # Each class gets its expected number, rounded down or up, and the total is exactly one
        # epoch.
        ends = np.floor(np.cumsum(probabilities) * examples + rng.random())
        ends[-1] = examples
        quotas = np.diff(ends, prepend=0).astype(np.int64)
        sampled = [
            _sample_class(rng, members[start : start + count], quota)
            for start, count, quota in zip(starts, counts, quotas, strict=True)
            if quota
        ]
        return rng.permutation(np.concatenate(sampled))

    return order


def _sample_class(rng: np.random.Generator, images: np.ndarray, quota: int) -> np.ndarray:
    """Return `quota` images of a class; their counts differ by at most one."""
    rounds, rest = divmod(quota, len(images))
    return np.concatenate([np.tile(images, rounds), rng.permutation(images)[:rest]])
