"""cuDNN searches where a size lasts a minute, and nowhere else."""

from types import SimpleNamespace

import pytest
import torch

from resnet_recipes.train.tuning import Tuning


@pytest.fixture(autouse=True)
def _switch():
    before = torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.benchmark = before


def plan(sizes: tuple[int, ...], steps_per_epoch: int = 100) -> SimpleNamespace:
    """What tuning reads of a plan: sizes by epoch."""
    return SimpleNamespace(total_steps=len(sizes) * steps_per_epoch, steps_per_epoch=steps_per_epoch,
                           pixels_at=lambda step: sizes[step // steps_per_epoch])


def timed(sizes: tuple[int, ...], seconds: float) -> Tuning:
    """Return the tuning of a run whose steps of the first size take so long."""
    tuning = Tuning(plan(sizes))
    tuning.observe(9, 1000.0)           # with compilation
    tuning.observe(19, seconds)
    return tuning


def searched(tuning: Tuning, *steps: int) -> list[bool]:
    result = []
    for step in steps:
        tuning.enter(step)
        result.append(torch.backends.cudnn.benchmark)
    return result


def test_it_is_off_until_a_step_has_been_timed():
    tuning = Tuning(plan((176,) * 10))
    assert searched(tuning, 0, 9) == [False, False]
    tuning.observe(9, 1000.0)           # with compilation
    assert searched(tuning, 19) == [False]
    tuning.observe(19, 0.5)
    assert searched(tuning, 20) == [True]


def test_only_sizes_that_last_a_minute_are_searched_for():
    # 0.25 s a step at 88 px: 75 s; 30 s and 35 s; 1 s at 176 px: 200 s
    tuning = timed((88, 88, 88, 96, 104, 176, 176), 0.25)
    assert searched(tuning, 20, 300, 400, 500) == [True, False, False, True]


def test_a_size_once_searched_for_stays_so_to_its_end():
    assert searched(timed((88,) * 3, 0.25), 20, 290) == [True, True]
    assert searched(timed((88,) * 3, 0.25), 290) == [False]


def test_a_slow_machine_searches_where_a_fast_one_does_not():
    for seconds, expected in ((0.05, False), (0.9, True)):
        assert searched(timed((224,), seconds), 20) == [expected]
