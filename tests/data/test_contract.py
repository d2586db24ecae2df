"""Every backend keeps the contract of resnet_recipes/data/loading/loader.py."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.base import DataConfig, DataFacts, RawBatch, Share


class Case(NamedTuple):
    """One backend with its settings."""

    config: DataConfig
    facts: DataFacts

    @contextmanager
    def train(self, rank: int = 0, world: int = 1, **changes) -> Iterator:
        """Open the training images in global batches of 12."""
        share = Share(
            **{"rank": rank, "world_size": world, "global_size": 12, "eval_size": 4, "seed": 5}
            | changes
        )
        loader = data.open_train(self.config, self.facts, share, None)
        try:
            yield loader
        finally:
            loader.close()

    @contextmanager
    def eval(self, rank: int = 0, world: int = 1) -> Iterator:
        """Open the evaluation images in batches of 4."""
        loader = data.open_eval(self.config, self.facts, Share(rank, world, 12, 4, seed=5))
        try:
            yield loader
        finally:
            loader.close()


BACKENDS = [
    pytest.param(("torchvision", 0), id="torchvision-inline"),
    pytest.param(("torchvision", 1), id="torchvision-1-worker"),
    pytest.param(("torchvision", 3), id="torchvision-3-workers"),
    pytest.param(("synthetic", 0), id="synthetic"),
    pytest.param(("ffcv", 2), id="ffcv"),
]


@pytest.fixture(params=BACKENDS)
def case(request: pytest.FixtureRequest, folder: Path) -> Case:
    """Return every backend in turn, over the same images where it reads any."""
    backend, workers = request.param
    root = request.getfixturevalue("betons") if backend == "ffcv" else folder
    config = DataConfig(
        backend=backend,
        root=str(root),
        train_size=32,
        eval_resize=40,
        eval_size=32,
        workers=workers,
    )
    return Case(config, data.measure(config))


def taken(batches: Iterator[RawBatch], count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return copies of the next batches: pixels [N, 3, H, W] and labels [N]."""
    return [
        (batch.pixels.cpu().numpy().copy(), batch.labels.cpu().numpy().copy())
        for batch in itertools.islice(batches, count)
    ]


def same(ours: list, theirs: list) -> bool:
    """Return whether two lists of batches are equal to the bit."""
    return len(ours) == len(theirs) and all(
        np.array_equal(a, b)
        for one, other in zip(ours, theirs, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def test_batches_are_uint8_in_channels_last_memory_with_int64_labels(case):
    with case.train() as train, case.eval() as evaluation:
        for batch, count in ((next(train.batches()), 12), (next(iter(evaluation.batches())), 4)):
            assert batch.pixels.dtype == torch.uint8
            assert batch.pixels.shape == (count, 3, 32, 32)
            assert batch.pixels.is_contiguous(memory_format=torch.channels_last)
            assert batch.labels.dtype == torch.int64
            assert batch.labels.shape == (count,)


def test_an_epoch_drops_the_incomplete_batch(case):
    with case.train() as loader:
        assert loader.examples == case.facts.train_examples
        assert loader.steps_per_epoch == case.facts.train_examples // 12


def test_batches_from_a_step_on_are_the_tail_of_all_batches_across_epochs(case):
    with case.train() as loader:
        steps = 2 * loader.steps_per_epoch + 2
        whole = taken(loader.batches(), steps)
        for first in (1, loader.steps_per_epoch, loader.steps_per_epoch + 1):
            assert same(taken(loader.batches(first), steps - first), whole[first:])


def test_epochs_differ_in_order_and_pixels(case):
    with case.train() as loader:
        steps = loader.steps_per_epoch
        both = taken(loader.batches(), 2 * steps)
    assert not same(both[:steps], both[steps:])


def test_ranks_together_take_the_global_batch_whatever_their_number(case):
    with case.train() as loader:
        alone = taken(loader.batches(), 4)
    for world in (2, 3):
        shares = []
        for rank in range(world):
            with case.train(rank, world) as loader:
                shares.append(taken(loader.batches(), 4))
        together = [
            tuple(np.concatenate(parts) for parts in zip(*step, strict=True))
            for step in zip(*shares, strict=True)
        ]
        assert same(together, alone)


def test_another_seed_gives_another_order(case):
    with case.train() as loader, case.train(seed=6) as other:
        assert not same(taken(loader.batches(), 2), taken(other.batches(), 2))


def test_a_training_epoch_has_no_image_twice(case):
    if case.facts.backend == "synthetic":
        pytest.skip("synthetic images repeat")
    whole = Case(
        DataConfig(
            **vars(case.config)
            | {"crop_scale": (1.0, 1.0), "crop_ratio": (1.0, 1.0), "flip": False}
        ),
        case.facts,
    )
    with whole.train(global_size=1) as loader:
        images = taken(loader.batches(), loader.examples)
    assert len({pixels.tobytes() for pixels, _ in images}) == case.facts.train_examples


def test_evaluation_gives_each_example_once_whatever_the_number_of_ranks(case):
    with case.eval() as loader:
        ordered = [
            image
            for pixels, labels in taken(loader.batches(), 99)
            for image in zip(pixels, labels, strict=True)
        ]
    assert len(ordered) == loader.examples == case.facts.eval_examples
    for world in (2, 3, 4):
        for rank in range(world):
            with case.eval(rank, world) as loader:
                sizes, mine = [], []
                for pixels, labels in taken(loader.batches(), 99):
                    sizes.append(len(labels))
                    mine += zip(pixels, labels, strict=True)
            assert all(size == 4 for size in sizes[:-1])
            expected = ordered[rank::world]
            assert len(mine) == len(expected)
            assert all(
                np.array_equal(a[0], b[0]) and a[1] == b[1]
                for a, b in zip(mine, expected, strict=True)
            )


def test_evaluation_can_be_repeated_after_being_left_half_way(case):
    with case.eval() as loader:
        taken(loader.batches(), 1)
        assert same(taken(loader.batches(), 99), taken(loader.batches(), 99))


def test_the_crop_changes_its_size_with_the_epoch(case):
    with case.train(train_pixels=(16, 24)) as loader:
        sizes = [
            pixels.shape[-1]
            for pixels, _ in taken(loader.batches(), 2 * loader.steps_per_epoch + 1)
        ]
    assert sizes == [16] * loader.steps_per_epoch + [24] * (loader.steps_per_epoch + 1)


def test_a_batch_holds_until_the_next_one_is_asked_for(case):
    with case.train() as loader:
        batch = next(loader.batches())
        before = batch.pixels.clone()
        time.sleep(0.2)  # workers fill whatever they believe to be free
        assert torch.equal(batch.pixels, before)


def test_closing_twice_leaves_no_process(case):
    before = set(active_children())
    with case.train() as train, case.eval() as evaluation:
        next(train.batches())
        next(iter(evaluation.batches()))
    train.close()
    evaluation.close()
    assert set(active_children()) <= before


def test_more_examples_in_a_batch_than_there_are_is_refused(case):
    with pytest.raises(NotReadyError, match=r"batch\.global_size"), case.train(global_size=10_000):
        pass
