"""Every backend follows the contract of resnet_recipes/data/loading/."""

from contextlib import closing
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from resnet_recipes import data
from resnet_recipes.data.base import DataConfig, DataFacts
from tests.data.loaders import ONE_RANK, copy_batches, make_small_config
from tests.shared.checks import is_identical


class BackendCase(NamedTuple):
    config: DataConfig
    facts: DataFacts

    def train(self, **changes) -> closing:
        """Open the training images in global batches of 12."""
        return closing(data.open_train(self.config, self.facts, replace(ONE_RANK, **changes)))

    def open_eval(self, **changes) -> closing:
        return closing(data.open_eval(self.config, self.facts, replace(ONE_RANK, **changes)))


BACKENDS = [
    ("torchvision", 0),
    ("torchvision", 1),
    ("torchvision", 3),
    ("synthetic", 0),
    ("ffcv", 2),
]


@pytest.fixture(params=BACKENDS, ids=str)
def backend_case(request: pytest.FixtureRequest, image_folder: Path) -> BackendCase:
    backend, workers = request.param
    root = request.getfixturevalue("betons") if backend == "ffcv" else image_folder
    order = "quasi_random" if backend == "ffcv" else "random"
    config = make_small_config(root, backend, workers=workers, order=order)
    return BackendCase(config, data.survey_images(config))


def test_batches_are_uint8_channels_last_with_int64_labels(backend_case):
    with backend_case.train() as train, backend_case.open_eval() as evaluation:
        for batch, count in ((next(train.batches()), 12), (next(evaluation.batches()), 4)):
            assert batch.pixels.dtype == torch.uint8
            assert batch.pixels.shape == (count, 3, 32, 32)
            assert batch.pixels.is_contiguous(memory_format=torch.channels_last)
            assert (batch.labels.dtype, batch.labels.shape) == (torch.int64, (count,))


def test_batches_from_step_equal_the_rest(backend_case):
    with backend_case.train() as loader:
        epoch = loader.examples // 12
        steps = 2 * epoch + 2
        whole = copy_batches(loader.batches(), steps)
        for first in (1, epoch, epoch + 1):
            assert is_identical(copy_batches(loader.batches(first), steps - first), whole[first:])
    assert not is_identical(whole[:epoch], whole[epoch : 2 * epoch])


def test_ranks_split_the_global_batch(backend_case):
    with backend_case.train() as loader:
        alone = copy_batches(loader.batches(), 4)
    for world in (2, 3):
        parts = []
        for rank in range(world):
            with backend_case.train(rank=rank, world_size=world) as loader:
                parts.append(copy_batches(loader.batches(), 4))
        together = [
            tuple(map(np.concatenate, zip(*step, strict=True))) for step in zip(*parts, strict=True)
        ]
        assert is_identical(together, alone)


def test_order_depends_on_seed(backend_case):
    with backend_case.train() as loader, backend_case.train(seed=6) as other:
        assert not is_identical(copy_batches(loader.batches(), 2), copy_batches(other.batches(), 2))


def test_training_epoch_has_no_image_twice(backend_case):
    if backend_case.facts.backend == "synthetic":
        pytest.skip("synthetic images repeat")
    uncut = {"crop_scale": (1.0, 1.0), "crop_ratio": (1.0, 1.0), "flip": False}
    backend_case = backend_case._replace(config=replace(backend_case.config, **uncut))
    with backend_case.train(global_size=1) as loader:
        images = copy_batches(loader.batches(), loader.examples)
    assert len({pixels.tobytes() for pixels, _ in images}) == backend_case.facts.train_examples


def read_rank_evaluation(case: BackendCase, **changes) -> tuple[list[int], list[tuple[bytes, int]]]:
    with case.open_eval(**changes) as loader:
        batches = copy_batches(loader.batches(), 99)
    images = [
        (pixels.tobytes(), int(label))
        for batch in batches
        for pixels, label in zip(*batch, strict=True)
    ]
    return [len(labels) for _, labels in batches], images


def test_evaluation_covers_examples_once_on_any_ranks(backend_case):
    _, ordered = read_rank_evaluation(backend_case)
    assert len(ordered) == backend_case.facts.eval_examples
    for world in (2, 3, 4):
        for rank in range(world):
            sizes, mine = read_rank_evaluation(backend_case, rank=rank, world_size=world)
            assert {*sizes[:-1]} <= {4}
            assert mine == ordered[rank::world]


def test_eval_loader_restarts_after_an_interrupted_epoch(backend_case):
    with backend_case.open_eval() as loader:
        copy_batches(loader.batches(), 1)
        assert is_identical(copy_batches(loader.batches(), 99), copy_batches(loader.batches(), 99))


def test_crop_size_changes_at_the_epoch(backend_case):
    with backend_case.train(train_sizes=(16, 24)) as loader:
        steps = loader.examples // 12
        batches = copy_batches(loader.batches(), 2 * steps + 1)
    sizes = [pixels.shape[-1] for pixels, _ in batches]
    assert sizes == [16] * steps + [24] * (steps + 1)


def test_closing_twice_leaves_no_process_behind(backend_case):
    before = set(active_children())
    with backend_case.train() as train, backend_case.open_eval() as evaluation:
        next(train.batches())
        next(evaluation.batches())
    train.close()
    evaluation.close()
    assert set(active_children()) <= before
