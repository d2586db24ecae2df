"""The clock and the compilation timer, with a simulated time."""

import time
from collections.abc import Callable

import pytest
import torch

from resnet_recipes.training.clock import Clock, CompilationTimer


@pytest.fixture
def advance_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [1000.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance


def test_clock_paused_does_not_advance(advance_time):
    clock = Clock(torch.device("cpu"))
    advance_time(2.0)
    with clock.pause():
        advance_time(50.0)
        assert clock.seconds() == 2.0
    advance_time(3.0)
    assert clock.seconds() == 5.0


def test_clock_restarted_continues_from_seconds(advance_time):
    clock = Clock(torch.device("cpu"))
    advance_time(7.0)
    clock.restart(100.0)
    advance_time(1.0)
    assert clock.seconds() == 101.0


def test_compilation_timer_counts_first_gradients_beyond_fastest(advance_time):
    timer = CompilationTimer()
    for size, seconds in (
        (32, 9.0),
        (32, 1.0),
        (32, 0.5),
        (32, 0.75),
        (48, 2.0),
        (48, 0.5),
        (48, 3.0),
    ):
        with timer.time_gradient(torch.Size((size,))):
            advance_time(seconds)
    assert timer.seconds() == 8.5 + 0.5 + 1.5
