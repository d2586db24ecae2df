"""Orders: permutations of every epoch, and refusals."""

import itertools

import numpy as np
import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data import order
from resnet_recipes.data.base import DataConfig, Share


def test_every_epoch_is_another_permutation():
    epochs = [order.shuffled(3, epoch, 1000) for epoch in range(3)]
    assert all(np.array_equal(np.sort(epoch), np.arange(1000)) for epoch in epochs)
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(order.shuffled(4, 0, 1000), epochs[0])


def test_the_global_batch_is_a_slice_of_the_permutation():
    share = Share(rank=1, world_size=3, global_size=12, eval_size=4, seed=9)
    jobs = list(itertools.islice(order.train_jobs(DataConfig(), share, 50, first_step=3), 3))
    assert [job.epoch for job in jobs] == [0, 1, 1]
    assert np.array_equal(jobs[0].indices, order.shuffled(9, 0, 50)[3 * 12 + 4 : 3 * 12 + 8])
    assert np.array_equal(jobs[2].indices, order.shuffled(9, 1, 50)[12 + 4 : 12 + 8])


def test_sizes_follow_the_epoch_and_the_last_one_holds_on():
    share = Share(0, 1, 1, 1, 0, train_pixels=(96, 128))
    jobs = order.train_jobs(DataConfig(), share, 1, 0)
    assert [job.pixels for job in itertools.islice(jobs, 4)] == [96, 128, 128, 128]
    assert (
        next(order.train_jobs(DataConfig(train_size=160), Share(0, 1, 1, 1, 0), 1, 5)).pixels == 160
    )


def test_an_epoch_without_a_whole_batch_is_refused():
    with pytest.raises(
        NotReadyError, match=r"batch\.global_size=64: is more than the 50 training images"
    ):
        order.whole_batches(Share(0, 1, 64, 4, 0), 50)


def repeated(share: Share, repeats: int, examples: int, steps: int) -> np.ndarray:
    """Return the (index, copy) pairs of the first steps of a rank, int64 [steps, N, 2]."""
    jobs = itertools.islice(
        order.train_jobs(DataConfig(repeats=repeats), share, examples, 0), steps
    )
    return np.stack([np.column_stack([job.indices, job.copies]) for job in jobs])


@pytest.mark.parametrize("repeats", [3, 4])
@pytest.mark.parametrize("world_size", range(1, 9))
def test_repeated_images_are_dealt_out_as_the_samplers_of_timm_and_torchvision_do(
    world_size, repeats
):
    """Shuffle, repeat each index in a row, take every world_size-th, and keep whole batches.

    The reference keeps N // 256 * 256 / world_size of them.
    """
    examples, batch = 256 * 4 + 11, 840
    dealt = np.repeat(order.shuffled(5, 0, examples), repeats)
    for rank in range(world_size):
        theirs = dealt[rank::world_size][: 1024 // world_size][: batch // world_size].tolist()
        share = Share(rank, world_size, batch, 1, 5, groups=world_size)
        assert repeated(share, repeats, examples, 1)[0, :, 0].tolist() == theirs


def test_micro_batches_are_the_same_on_any_number_of_ranks_and_have_no_image_twice():
    def batch(world_size: int) -> np.ndarray:
        """Return the (index, copy) pairs of the micro-batches of a step, [8, 8, 2]."""
        shares = [Share(rank, world_size, 64, 1, 0, groups=8) for rank in range(world_size)]
        rows = [repeated(share, 3, 500, 2)[1] for share in shares]
        return np.concatenate(rows).reshape(8, 8, 2)

    groups = batch(8)
    assert all(len({*group[:, 0].tolist()}) == 8 for group in groups)
    for world_size in (1, 2, 4):
        assert np.array_equal(batch(world_size), groups)


def test_a_resumed_epoch_deals_out_the_same_images():
    share = Share(1, 2, 64, 1, 0, groups=4)
    [job] = itertools.islice(order.train_jobs(DataConfig(repeats=3), share, 500, first_step=9), 1)
    assert np.array_equal(
        np.column_stack([job.indices, job.copies]), repeated(share, 3, 500, 10)[9]
    )
