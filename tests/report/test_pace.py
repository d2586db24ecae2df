"""The estimate of the time that is left."""

import pytest

from resnet_recipes.report.waiting import Pace


@pytest.fixture
def pace(facts):
    return Pace(facts)


def test_nothing_is_estimated_before_a_measurement(pace):
    assert pace.seconds_left(0) is None


def test_steps_cost_by_their_operations(pace):
    pace.observe(8, 1.0, settled=True)
    assert pace.seconds_left(10) == pytest.approx(10 * 1.0 + 20 * 4.0)


def test_a_later_measurement_counts_in_part(pace):
    pace.observe(8, 1.0, settled=True)
    pace.observe(9, 2.0, settled=True)
    assert pace.seconds_left(15) == pytest.approx(1.2 * (5 * 1.0 + 20 * 4.0))


def test_the_first_interval_counts_only_until_there_is_a_better_one(pace):
    pace.observe(8, 30.0, settled=False)
    assert pace.seconds_left(19) == pytest.approx(30.0 + 20 * 120.0)
    pace.observe(9, 1.0, settled=True)
    assert pace.seconds_left(19) == pytest.approx(1.0 + 20 * 4.0)
    pace.observe(21, 99.0, settled=False)
    assert pace.seconds_left(19) == pytest.approx(1.0 + 20 * 4.0)


def test_evaluations_that_are_still_to_come_are_counted(pace):
    pace.observe(8, 1.0, settled=True)
    pace.evaluated(5.0)
    assert pace.seconds_left(25) == pytest.approx(15 * 4.0 + 2 * 5.0)


def test_nothing_is_left_at_the_end(pace):
    pace.observe(8, 1.0, settled=True)
    pace.evaluated(5.0)
    assert pace.seconds_left(40) == 0
