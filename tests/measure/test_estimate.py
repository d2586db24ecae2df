"""Estimates against arithmetic done by hand."""

from dataclasses import replace

import pytest

from resnet_recipes.measure import memory
from resnet_recipes.measure.estimate import Speeds, estimate

SPEEDS = Speeds({88: (0.001,) * 5, 176: (0.004,) * 5}, None, 500.0, 64)


def test_each_size_takes_its_images_times_its_seconds():
    made = estimate((88, 88, 176), 10, 100, 3000, SPEEDS)
    assert [(phase.pixels, phase.epochs) for phase in made.phases] == [(88, 2), (176, 1)]
    assert [phase.minutes for phase in made.phases] == pytest.approx(
        [2000 * 0.001 / 60, 1000 * 0.004 / 60]
    )
    assert [phase.images_per_second for phase in made.phases] == pytest.approx([1000, 250])
    assert made.evaluation_minutes == pytest.approx(3000 / 500 / 60)
    assert made.cost(60.0) == pytest.approx(made.minutes + made.evaluation_minutes)


def test_sizes_between_the_measured_ones_are_interpolated_by_area():
    side = 128
    share = (side**2 - 88**2) / (176**2 - 88**2)
    assert SPEEDS.seconds_at(side)[1] == pytest.approx(0.001 + share * 0.003)
    assert SPEEDS.seconds_at(352)[1] == pytest.approx(0.016)


def test_a_slow_loader_is_what_a_phase_waits_for():
    slow = Speeds(SPEEDS.step, 400.0, 500.0, 64)
    first, second = estimate((88, 176), 10, 100, 0, slow).phases
    assert (first.limit, second.limit) == ("loader", "step")
    assert first.minutes == pytest.approx(1000 / 400 / 60)


def test_each_size_settles_once():
    made = estimate((88, 88, 176), 10, 100, 0, replace(SPEEDS, warm_up_seconds=6.0))
    assert [phase.minutes for phase in made.phases] == pytest.approx(
        [2000 * 0.001 / 60 + 0.1, 1000 * 0.004 / 60 + 0.1]
    )


def test_what_loading_and_training_cost_each_other_is_paid_for_each_image():
    """By hand: 1 ms a step alone, 1.25 ms alongside the loader at 88 px."""
    made = estimate((88, 176), 10, 100, 0, replace(SPEEDS, loader=5000.0, end_to_end=800.0))
    assert [phase.minutes for phase in made.phases] == pytest.approx(
        [1000 * 0.00125 / 60, 1000 * 0.00425 / 60]
    )


def test_a_step_that_is_mostly_exchange_waits_for_it():
    """A step of 2 x 64 images at 88 px takes 128 ms, one at 176 px 512 ms."""
    slow = replace(SPEEDS, devices=2, exchange=0.1)
    assert [phase.limit for phase in estimate((88, 176), 10, 100, 0, slow).phases] == [
        "exchange",
        "step",
    ]


def test_bounds_are_the_quartiles_of_the_measured_steps():
    speeds = Speeds({88: (1.0, 2.0, 3.0, 4.0, 5.0)}, None, 1.0, 1)
    low, high = estimate((88,), 1, 60, 0, speeds).bounds
    assert 1.0 <= low < 3.0 < high <= 5.0
    assert estimate((88,), 1, 60, 0, speeds).minutes == pytest.approx(3.0)


def test_speeds_are_recalled_for_the_same_facts_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    key = memory.key_of({"model": "resnet50"})
    assert memory.recall(key) is None
    memory.remember(key, SPEEDS)
    assert memory.recall(key).speeds == SPEEDS
    assert memory.recall(memory.key_of({"model": "resnet18"})) is None
    next((tmp_path / "resnet-recipes" / "speeds").iterdir()).write_text("{}")
    assert memory.recall(key) is None
