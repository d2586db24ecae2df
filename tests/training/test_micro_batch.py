"""The search for the largest micro-batch, on a simulated GPU."""

from itertools import chain

import pytest
import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.training import micro_batch


@pytest.fixture
def micro_batch_search(make_run, monkeypatch):
    """Return a search on a simulated GPU that fits `most` images, its calls, and the run."""
    arguments = "batch.global_size=96 batch.bn_size=auto max_duration=8ba launch.device=auto"
    run = make_run(arguments)
    calls = []

    def search(most: int, engine: int = 96) -> int:
        def build(plan, rank):
            calls.append(plan.micro_batch_size)
            assert plan.micro_batches * plan.micro_batch_size == 96
            if plan.micro_batch_size > engine:
                raise RuntimeError("GET was unable to find an engine to execute this computation")
            if plan.micro_batch_size > most:
                raise TrainingError("out of memory") from torch.OutOfMemoryError()
            return run

        monkeypatch.setattr(micro_batch, "build", build)
        monkeypatch.setattr(run, "close", lambda: calls.append(run))
        monkeypatch.setattr(micro_batch.gc, "collect", lambda: calls.append("freed"))  # takes 50 ms
        return micro_batch.find_micro_batch(run.plan, run.rank)

    return search, calls, run


@pytest.mark.parametrize(("most", "expected"), [(96, 96), (95, 48), (40, 32), (1, 1)])
def test_micro_batch_is_largest_divisor_that_fits(most, expected, micro_batch_search):
    search, calls, run = micro_batch_search
    assert search(most) == expected
    larger = [size for size in (96, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2) if size > expected]
    assert calls == [*chain.from_iterable((size, "freed") for size in larger), expected, run]


@pytest.mark.parametrize(("most", "engine", "expected"), [(40, 48, 32), (48, 40, 32)])
def test_micro_batch_without_cudnn_engine_does_not_fit(most, engine, expected, micro_batch_search):
    assert micro_batch_search[0](most, engine) == expected


@pytest.mark.parametrize(
    ("engine", "why"), [(96, "out of memory"), (0, "GET was unable to find an engine")]
)
def test_micro_batch_search_fails_with_last_reason(engine, why, micro_batch_search):
    with pytest.raises(TrainingError, match=f"not even one image can be computed .*: {why}"):
        micro_batch_search[0](0, engine)


def test_micro_batch_search_reraises_other_errors(micro_batch_search, monkeypatch):
    search, *_, run = micro_batch_search

    def fail(plan, rank):
        raise TrainingError("no images")

    search(96)
    monkeypatch.setattr(micro_batch, "build", fail)
    with pytest.raises(TrainingError, match="no images"):
        micro_batch.find_micro_batch(run.plan, run.rank)
