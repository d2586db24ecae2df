"""Test vectors from the MosaicML recipes.

Peak learning rate 2.048, 625 steps per epoch, 5,000 warm-up steps; step k has k completed steps.
"""

import math
from functools import partial

import numpy as np
import pytest

from resnet_recipes.base import schedule
from tests.shared.tables import parse_rows

PEAK, S, WARMUP = 2.048, 625, 5000


def compute_cosine(step: int, total: int, warmup: int = WARMUP, **settings: float) -> float:
    """Return the learning rate of a cosine schedule with warm-up."""
    fall = schedule.cosine(step, total=total, warmup=warmup, **settings)
    return schedule.rise(step, warmup) * fall


@pytest.mark.parametrize(
    ("epochs", "step", "rate"),
    parse_rows(
        """
36 | 0 | 0.0
36 | 1 | 0.0004096
36 | 15 | 0.006144
36 | 625 | 0.256
36 | 2500 | 1.024
36 | 4999 | 2.0475904
36 | 5000 | 2.048
36 | 11250 | 1.468296949
36 | 13750 | 1.024
36 | 21875 | 0.006438697
36 | 22499 | 1.65e-08
90 | 28125 | 1.180312867
90 | 30625 | 1.024
90 | 55625 | 0.000751431
16 | 9375 | 0.077947359
60 | 18750 | 1.26905924
270 | 84375 | 1.073095536
"""
    ),
)
def test_cosine_matches_published_learning_rates(epochs, step, rate):
    actual = PEAK * compute_cosine(int(step), int(epochs) * S)
    assert actual == pytest.approx(float(rate), rel=1e-8, abs=1e-9)


def test_cosine_stays_at_its_final_value():
    assert [compute_cosine(step, 22500, final=0.1) for step in (22500, 99999)] == [0.1, 0.1]


@pytest.fixture(params=("cosine", "polynomial", "multistep", "wsd"))
def curve(request):
    settings = {
        "multistep": {"milestones": [30, 60], "gamma": 0.1},
        "wsd": {"total": 100, "cooldown": 20},
    }
    ended = {"total": 100, "warmup": 10}
    return partial(getattr(schedule, request.param), **settings.get(request.param, ended))


def test_curves_are_at_peak_until_warmup_ends(curve):
    assert [curve(step) for step in range(11)] == [1] * 11


def test_warmup_is_linear_from_its_start():
    rates = [schedule.rise(step, 10) for step in range(12)]
    assert rates == pytest.approx([*np.linspace(0, 1, 11), 1])
    rates = [schedule.rise(step, 10, start=0.2) for step in (0, 5, 10)]
    assert rates == pytest.approx([0.2, 0.6, 1])
    assert schedule.rise(0, 0) == 1


def test_curves_stay_between_zero_and_peak(curve):
    assert all(0 <= curve(step) <= 1 for step in range(120))


def test_cosine_from_start_falls_during_warmup():
    rates = [compute_cosine(step, 100, 10, from_start=True) for step in (9, 10, 50, 100)]
    assert rates == pytest.approx([0.9, (1 + math.cos(math.pi / 10)) / 2, 0.5, 0])


def test_epoch_uses_lr_of_its_start_unless_zero():
    steps = (0, 9, 12, 15, 20, 39)
    for warmup, start, used in (
        (20, 0.0, [10, 10, 20, 20, 20, 30]),
        (20, 0.1, [0, 0, 10, 10, 20, 30]),
        (15, 0.0, [10, 10, 15, 15, 20, 30]),  # a warm-up that ends within an epoch
    ):
        settings = {"steps_per_epoch": 10, "warmup": warmup, "start": start}
        assert [schedule.get_lr_step(step, **settings) for step in steps] == used


def test_polynomial_falls_by_its_power_to_final_value():
    for settings, rates in (
        ({"total": 50, "warmup": 10, "final": 0.2}, [1, 1, 0.8, 0.2, 0.2]),
        ({"total": 100, "power": 2}, [1, 0.81, 0.64, 0.25, 0.01]),
    ):
        actual = [schedule.polynomial(step, **settings) for step in (0, 10, 20, 50, 90)]
        assert actual == pytest.approx(rates)


def test_multistep_multiplies_from_the_milestone_on():
    rates = [
        schedule.multistep(step, milestones=[30, 60], gamma=0.1) for step in (29, 30, 59, 60, 99)
    ]
    assert rates == pytest.approx([1, 0.1, 0.1, 0.01, 0.01])


def test_warmup_epoch_uses_lr_of_its_end():
    """As in NVIDIA DeepLearningExamples, warm-up epoch e of 8 uses (e + 1) / 8 of the peak."""
    for epoch in range(8):
        step = schedule.get_lr_step(epoch * S + 3, steps_per_epoch=S, warmup=8 * S)
        assert compute_cosine(step, 90 * S, 8 * S) == pytest.approx((epoch + 1) / 8)
    step = schedule.get_lr_step(8 * S, steps_per_epoch=S, warmup=8 * S)
    assert compute_cosine(step, 90 * S, 8 * S) == 1


@pytest.mark.parametrize(("shape", "middle"), [("linear", 0.5), ("sqrt", 1 - math.sqrt(0.5))])
def test_wsd_is_constant_before_the_cooldown(shape, middle):
    rate = partial(schedule.wsd, total=100, cooldown=20, shape=shape)
    assert [rate(step) for step in (0, 79, 80, 90, 100)] == pytest.approx([1, 1, 1, middle, 0])
