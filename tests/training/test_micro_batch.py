"""The largest micro-batch that fits is found by trying."""

from itertools import chain

import pytest
import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.training import build as building


@pytest.fixture
def tried(make_run, monkeypatch):
    """Return a search as on a GPU that fits `most` images, the numbers it tried, and the run."""
    run, found = make_run("batch.global_size=96 batch.bn_size=auto max_duration=8ba"), []

    def search(most: int, engine: int = 96) -> int:
        def build(plan, rank):
            found.append(plan.bn_size)
            assert plan.microbatches * plan.bn_size == 96
            if plan.bn_size > engine:
                raise RuntimeError("GET was unable to find an engine to execute this computation")
            if plan.bn_size > most:
                raise TrainingError("out of memory") from torch.OutOfMemoryError()
            return run

        monkeypatch.setattr(building, "build", build)
        monkeypatch.setattr(run, "close", lambda: found.append(run))
        monkeypatch.setattr(building.gc, "collect", lambda: found.append("freed"))  # takes 50 ms
        return building.largest_micro_batch(run.plan, run.rank)

    return search, found, run


@pytest.mark.parametrize(("most", "expected"), [(96, 96), (95, 48), (40, 32), (1, 1)])
def test_the_largest_divisor_of_the_batch_that_fits_is_found(most, expected, tried):
    search, found, run = tried
    assert search(most) == expected
    larger = [size for size in (96, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2) if size > expected]
    assert found == [*chain.from_iterable((size, "freed") for size in larger), expected, run]


@pytest.mark.parametrize(("most", "engine", "expected"), [(40, 48, 32), (48, 40, 32)])
def test_tensors_that_cudnn_has_no_engine_for_do_not_fit(most, engine, expected, tried):
    assert tried[0](most, engine) == expected


@pytest.mark.parametrize(
    ("engine", "why"), [(96, "out of memory"), (0, "GET was unable to find an engine")]
)
def test_where_no_image_fits_the_search_ends_with_the_last_reason(engine, why, tried):
    with pytest.raises(TrainingError, match=f"not even one image can be computed .*: {why}"):
        tried[0](0, engine)


def test_another_failure_is_not_taken_for_a_lack_of_memory(tried, monkeypatch):
    search, *_, run = tried

    def fails(plan, rank):
        raise TrainingError("no images")

    search(96)
    monkeypatch.setattr(building, "build", fails)
    with pytest.raises(TrainingError, match="no images"):
        building.largest_micro_batch(run.plan, run.rank)
