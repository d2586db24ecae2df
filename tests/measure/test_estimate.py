"""Estimates against arithmetic done by hand."""

import pytest

from resnet_recipes.measure import memory
from resnet_recipes.measure.estimate import EXCHANGE, Speeds, estimate

SPEEDS = Speeds({88: (0.001,) * 5, 176: (0.004,) * 5}, None, 500.0, 64)


def test_each_size_takes_its_images_times_its_seconds() -> None:
    made = estimate((88, 88, 176), 10, 100, 1, 3000, SPEEDS)
    assert [(phase.pixels, phase.epochs) for phase in made.phases] == [(88, 2), (176, 1)]
    assert [phase.minutes for phase in made.phases] == pytest.approx([2000 * 0.001 / 60, 1000 * 0.004 / 60])
    assert [phase.images_per_second for phase in made.phases] == pytest.approx([1000, 250])
    assert made.evaluation_minutes == pytest.approx(3000 / 500 / 60)
    assert made.cost(60.0) == pytest.approx(made.minutes + made.evaluation_minutes)


def test_sizes_between_the_measured_ones_are_interpolated_by_area() -> None:
    side = 128
    share = (side**2 - 88**2) / (176**2 - 88**2)
    assert SPEEDS.seconds_at(side)[1] == pytest.approx(0.001 + share * 0.003)
    assert SPEEDS.seconds_at(352)[1] == pytest.approx(0.016)


def test_a_slow_loader_is_what_a_phase_waits_for() -> None:
    slow = Speeds(SPEEDS.step, 400.0, 500.0, 64)
    first, second = estimate((88, 176), 10, 100, 1, 0, slow).phases
    assert (first.limit, second.limit) == ("loader", "step")
    assert first.minutes == pytest.approx(1000 / 400 / 60)


def test_devices_share_the_work_and_their_exchange_widens_the_bounds() -> None:
    one, eight = (estimate((88,), 10, 100, devices, 1000, SPEEDS) for devices in (1, 8))
    assert eight.bounds == pytest.approx((one.minutes / 8, one.minutes / 8 * (1 + EXCHANGE)))
    assert eight.evaluation_minutes == pytest.approx(one.evaluation_minutes / 8)


def test_bounds_are_the_quartiles_of_the_measured_steps() -> None:
    speeds = Speeds({88: (1.0, 2.0, 3.0, 4.0, 5.0)}, None, 1.0, 1)
    low, high = estimate((88,), 1, 60, 1, 0, speeds).bounds
    assert 1.0 <= low < 3.0 < high <= 5.0
    assert estimate((88,), 1, 60, 1, 0, speeds).minutes == pytest.approx(3.0)


def test_speeds_are_recalled_for_the_same_facts_alone(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    key = memory.key_of({"model": "resnet50"})
    assert memory.recall(key) is None
    memory.remember(key, SPEEDS)
    assert memory.recall(key).speeds == SPEEDS
    assert memory.recall(memory.key_of({"model": "resnet18"})) is None
    next((tmp_path / "resnet-recipes" / "speeds").iterdir()).write_text("{}")
    assert memory.recall(key) is None
