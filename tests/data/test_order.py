"""Orders: a permutation of every epoch, or classes at requested frequencies; and rejections."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.data.base import Batching, DataConfig, SoftLabels
from resnet_recipes.data.order import (
    count_occurrences,
    generate_epoch_batches,
    generate_train_batches,
    make_balanced_order,
    shuffle,
)
from tests.shared.tables import parse_rows, parse_settings


def test_shuffle_permutes_differently_by_epoch_and_seed():
    epochs = [shuffle(3, epoch, 1000) for epoch in range(3)]
    assert all(np.array_equal(np.sort(epoch), np.arange(1000)) for epoch in epochs)
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(shuffle(4, 0, 1000), epochs[0])


def test_rank_batch_is_a_slice_of_shuffled_epoch():
    batching = Batching(rank=1, world_size=3, global_size=12, eval_size=4, seed=9)
    orders = list(
        itertools.islice(generate_train_batches(DataConfig(), batching, 50, 3, shuffle), 3)
    )
    assert [order.crop_epoch for order in orders] == [0, 1, 1]
    assert np.array_equal(orders[0].indices, shuffle(9, 0, 50)[3 * 12 + 4 : 3 * 12 + 8])
    assert np.array_equal(orders[2].indices, shuffle(9, 1, 50)[12 + 4 : 12 + 8])


def test_stored_soft_labels_repeat_crops_but_not_order():
    batching = Batching(0, 1, 10, 1, 5, soft_labels=SoftLabels(Path(), "", epochs=2, classes=3))
    orders = itertools.islice(generate_train_batches(DataConfig(), batching, 10, 0, shuffle), 5)
    for epoch, order in enumerate(orders):
        assert order.crop_epoch == epoch % 2
        assert np.array_equal(order.indices, shuffle(5, epoch, 10))


@pytest.mark.parametrize("repeats", [3, 4])
@pytest.mark.parametrize("world_size", range(1, 9))
def test_repeats_follow_timm_and_torchvision_samplers(world_size, repeats):
    """Shuffle, repeat each index in a row, take every world_size-th, and keep complete batches.

    The reference keeps N // 256 * 256 / world_size of them.
    """
    examples = 256 * 4 + 11
    batch = 840
    dealt = np.repeat(shuffle(5, 0, examples), repeats)
    for rank in range(world_size):
        theirs = dealt[rank::world_size][: 1024 // world_size][: batch // world_size].tolist()
        batching = Batching(rank, world_size, batch, 1, 5, groups=world_size)
        order = next(
            generate_train_batches(DataConfig(repeats=repeats), batching, examples, 0, shuffle)
        )
        assert order.indices.tolist() == theirs


COUNTS = 400, 90, 9, 1
LABELS = np.repeat(np.arange(4), COUNTS)


def count_occurrences_in_epoch(
    balance: float, epoch: int = 0, labels: np.ndarray = LABELS
) -> np.ndarray:
    """Return how often each image occurs in an epoch."""
    order = make_balanced_order(labels, balance)(7, epoch, len(labels))
    assert len(order) == len(labels)
    return np.bincount(order, minlength=len(labels))


@pytest.mark.parametrize(
    ("balance", "expected"),
    [
        (0.0, COUNTS),
        (1.0, (125, 125, 125, 125)),
        # 500 times 20, 9.4868, 3 and 1, divided by 33.4868
        (0.5, (298.6, 141.6, 44.8, 14.9)),
    ],
)
def test_balanced_order_mixes_even_and_natural_counts(balance, expected):
    actual = np.bincount(LABELS, weights=count_occurrences_in_epoch(balance), minlength=4)
    assert np.all(np.abs(actual - expected) <= 1)


def test_balanced_order_varies_by_epoch_and_seed():
    counts = [
        np.bincount(LABELS, weights=count_occurrences_in_epoch(0.5, epoch)).tolist()
        for epoch in range(40)
    ]
    assert len(set(map(tuple, counts))) > 1
    order = make_balanced_order(LABELS, 1.0)
    assert not np.array_equal(order(7, 0, 500), order(8, 0, 500))  # also depends on the seed
    assert np.mean(counts, 0) == pytest.approx([298.6, 141.6, 44.8, 14.9], abs=0.4)


def test_balanced_order_samples_images_of_a_class_equally():
    assert {*count_occurrences_in_epoch(0.0)} == {1}
    times = np.split(count_occurrences_in_epoch(1.0), np.cumsum(COUNTS)[:-1])
    assert all(np.ptp(of_class) <= 1 for of_class in times)
    # over many epochs, every image of a large class is used
    assert sum(count_occurrences_in_epoch(1.0, epoch) for epoch in range(30))[LABELS == 0].min() > 0


def test_balanced_order_skips_classes_without_images():
    labels = np.repeat([0, 2], [30, 10])
    assert np.bincount(labels, weights=count_occurrences_in_epoch(1.0, labels=labels)).tolist() == [
        20,
        0,
        20,
    ]


def test_occurrences_count_earlier_repeats():
    order = np.array([4, 1, 4, 4, 1, 0])
    before = [order[:i].tolist().count(index) for i, index in enumerate(order.tolist())]
    assert count_occurrences(order).tolist() == before == [0, 0, 1, 2, 1, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    parse_rows(
        """
sampling=equal | natural, sqrt, balanced, a fraction
sampling=1.5 | natural, sqrt, balanced, a fraction
sampling=sqrt repeats=2 | cannot be used with data.repeats=2
sampling=0.3 order=quasi_random | cannot be used with data.order=quasi_random
sampling=sqrt backend=synthetic | cannot be used with synthetic images
sampling=natural |
sampling=balanced |
sampling=0.0 |
sampling=1 |
"""
    ),
)
def test_data_config_rejects_impossible_order_settings(settings, message):
    problems = list(DataConfig(root="images", **parse_settings(settings)).problems())
    assert [message in str(problem) for problem in problems] == [True] * bool(message)


def list_batch_rows(ranks: int, first: int, steps: int, repeats: int) -> list[tuple[int, int, int]]:
    """Return (epoch, index, copy) of every row of some global batches, rank after rank."""
    config = DataConfig(repeats=repeats)
    order_epoch = make_balanced_order(LABELS, 1.0)
    if repeats > 1:
        order_epoch = shuffle
    batchings = [Batching(rank, ranks, 40, 1, seed=3, groups=4) for rank in range(ranks)]
    orders = [
        generate_train_batches(config, batching, len(LABELS), first, order_epoch)
        for batching in batchings
    ]
    return [
        (order.crop_epoch, *key)
        for _ in range(steps)
        for order in map(next, orders)
        for key in zip(order.indices.tolist(), order.copies.tolist(), strict=True)
    ]


@pytest.mark.parametrize("repeats", [1, 3])
def test_batch_rows_are_equal_across_ranks_and_resumes(repeats):
    whole = list_batch_rows(1, 0, 50, repeats)
    assert list_batch_rows(4, 0, 50, repeats) == whole
    assert list_batch_rows(2, 37, 13, repeats) == whole[37 * 40 :]


def test_copies_of_image_are_in_separate_micro_batches():
    rows = list_batch_rows(1, 0, 50, 3)
    images = [index for _, index, _ in rows]
    assert all(len({*images[at : at + 10]}) == 10 for at in range(0, len(images), 10))
    assert len({*rows}) == len(rows)  # no two are equal


def test_repeats_in_balanced_epoch_have_distinct_copy_numbers():
    rows = list_batch_rows(1, 0, 24, 1)
    assert len(set(rows)) == len(rows)
    assert max(copy for *_, copy in rows) > 50


def test_epoch_blocks_have_one_size_and_every_image():
    blocks = []
    for rank in range(2):
        batching = Batching(rank, 2, global_size=8, eval_size=1, seed=0)
        blocks += generate_epoch_batches(DataConfig(repeats=2), batching, 10, epoch=3)
    assert {len(block.indices) for block in blocks} == {4}
    for copy in range(2):
        parts = [block.indices for block in blocks if block.copies[0] == copy]
        assert sorted({*np.concatenate(parts).tolist()}) == [*range(10)]
