"""Orders: permutations of every epoch, and refusals."""

import itertools

import numpy as np
import pytest

from resnet_recipes.data import order
from resnet_recipes.data.base import DataConfig, Share
from resnet_recipes.errors import NotReadyError


def test_every_epoch_is_another_permutation():
    epochs = [order.shuffled(3, epoch, 1000) for epoch in range(3)]
    assert all(np.array_equal(np.sort(epoch), np.arange(1000)) for epoch in epochs)
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(order.shuffled(4, 0, 1000), epochs[0])


def test_the_global_batch_is_a_slice_of_the_permutation():
    share = Share(rank=1, world_size=3, global_size=12, eval_size=4, seed=9)
    jobs = list(itertools.islice(order.train_jobs(DataConfig(), share, 50, first_step=3), 3))
    assert [job.epoch for job in jobs] == [0, 1, 1]
    assert np.array_equal(jobs[0].indices, order.shuffled(9, 0, 50)[3 * 12 + 4:3 * 12 + 8])
    assert np.array_equal(jobs[2].indices, order.shuffled(9, 1, 50)[12 + 4:12 + 8])


def test_sizes_follow_the_epoch_and_the_last_one_holds_on():
    share = Share(0, 1, 1, 1, 0, train_pixels=(96, 128))
    jobs = order.train_jobs(DataConfig(), share, 1, 0)
    assert [job.pixels for job in itertools.islice(jobs, 4)] == [96, 128, 128, 128]
    assert next(order.train_jobs(DataConfig(train_size=160), Share(0, 1, 1, 1, 0), 1, 5)).pixels == 160


def test_an_epoch_without_a_whole_batch_is_refused():
    with pytest.raises(NotReadyError, match=r"batch\.global_size=64: is more than the 50 training images"):
        order.whole_batches(Share(0, 1, 64, 4, 0), 50)
