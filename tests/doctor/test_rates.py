"""Speeds are work divided by the time of one call."""

import timeit
from functools import partial

import pytest
import torch

from resnet_recipes.doctor import rates

CPU = torch.device("cpu")


def test_seconds_are_median_of_laps_after_first(monkeypatch):
    calls = []
    clock = iter([0.0, 2.0, 10.0, 16.0, 20.0, 22.0])
    timed = partial(timeit.repeat, timer=lambda: next(clock))
    monkeypatch.setattr(rates.timeit, "repeat", timed)
    assert rates.measure_seconds(lambda: calls.append(1), CPU, times=3, repeats=2) == 1.0
    assert len(calls) == 1 + 3 * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rates_count_both_directions_and_multiply_and_add(monkeypatch, dtype):
    monkeypatch.setattr(rates, "measure_seconds", lambda work, device: work() is not None and 0.5)
    assert rates.measure_traffic(CPU, 1024) == 2 * 1024 / 0.5
    assert rates.measure_products(CPU, dtype, 16) == 2 * 16**3 / 0.5
