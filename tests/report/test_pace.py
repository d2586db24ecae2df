"""The estimate of the time that is left."""

import pytest

from resnet_recipes.report.pace import Pace


@pytest.fixture
def pace(facts):
    return Pace(facts)


def test_nothing_is_estimated_before_a_measurement(pace):
    assert pace.seconds_left(0) is None


def test_a_size_that_was_not_seen_costs_by_its_pixels(pace):
    pace.observe(64, 1.0, settled=True)
    assert pace.seconds_left(10) == 10 * 1.0 + 20 * 4.0


def test_a_size_that_was_seen_costs_what_was_measured(pace):
    pace.observe(64, 1.0, settled=True)
    pace.observe(128, 1.5, settled=True)
    assert pace.seconds_left(15) == 5 * 1.0 + 20 * 1.5


def test_the_first_interval_counts_only_until_there_is_a_better_one(pace):
    pace.observe(64, 30.0, settled=False)
    assert pace.seconds_left(19) == 30.0 + 20 * 120.0
    pace.observe(64, 1.0, settled=True)
    assert pace.seconds_left(19) == 1.0 + 20 * 4.0


def test_evaluations_that_are_still_to_come_are_counted(pace):
    pace.observe(64, 1.0, settled=True)
    pace.evaluated(5.0)
    assert pace.seconds_left(25) == 15 * 4.0 + 2 * 5.0


def test_nothing_is_left_at_the_end(pace):
    pace.observe(64, 1.0, settled=True)
    pace.evaluated(5.0)
    assert pace.seconds_left(40) == 0
