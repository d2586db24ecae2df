"""Progress messages never go to the output, and disappear."""

import io
import re
from dataclasses import replace

import pytest

from resnet_recipes.report import progress
from resnet_recipes.report.progress import Pace, ProgressLine
from tests.report.terminals import TerminalStream


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return now


def test_progress_line_prints_every_ten_seconds_to_pipe(clock):
    err = io.StringIO()
    with ProgressLine("evaluating", stream=err) as show:
        for second in range(26):
            clock[0] = 100.0 + second
            show(second * 100, 5000)
    assert err.getvalue().splitlines() == [
        "evaluating: 1,000 of 5,000 images, 0:40 left",
        "evaluating: 2,000 of 5,000 images, 0:30 left",
    ]


def test_progress_line_ignores_earlier_progress_in_speed(clock):
    err = io.StringIO()
    with ProgressLine("converting", stream=err) as show:
        for second in range(11):
            clock[0] = 100.0 + second
            show(4000 + 10 * second, 5000)
        show(0, 900)  # the next split
        clock[0] = 120.0
        show(100, 900)
    assert err.getvalue().splitlines() == [
        "converting: 4,100 of 5,000 images, 1:30 left",
        "converting: 100 of 900 images, 1:20 left",
    ]


def test_progress_line_omits_start_and_end_in_pipe(clock):
    err = io.StringIO()
    with ProgressLine("comparing", stream=err) as show:
        clock[0] = 115.0  # a long preparation
        show(0, 64)
        clock[0] = 126.0
        show(0, 64)
        clock[0] = 137.0
        show(64, 64)
    assert err.getvalue() == ""


def test_progress_line_removes_its_bar_from_terminal(clock):
    err = TerminalStream()
    with ProgressLine("training", "steps", stream=err) as show:
        show(0, 40)
        clock[0] = 110.0
        show(10, 40)
        show.say("epoch 1: 9.0 s")
    text = err.getvalue()
    assert "training" in text
    assert "10 of 40 steps, 0:30 left" in text
    assert "epoch 1: 9.0 s\n" in text
    after = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.rpartition("epoch 1: 9.0 s\n")[2])
    assert after.strip() == ""
    assert text.count("\x1b[?25h") >= text.count("\x1b[?25l") >= 1


@pytest.fixture
def pace(facts):
    measured = Pace(facts)
    assert measured.seconds_left(0) is None  # before a measurement
    return measured


def test_pace_weighs_steps_by_flops(pace):
    pace.observe(8, 1.0, is_settled=True)
    assert pace.seconds_left(10) == pytest.approx(10 * 1.0 + 20 * 4.0)


def test_pace_averages_later_measurements(pace):
    pace.observe(8, 1.0, is_settled=True)
    pace.observe(9, 2.0, is_settled=True)
    assert pace.seconds_left(15) == pytest.approx(1.2 * (5 * 1.0 + 20 * 4.0))


def test_pace_ignores_unsettled_interval_once_settled(pace):
    pace.observe(8, 30.0, is_settled=False)
    assert pace.seconds_left(19) == pytest.approx(30.0 + 20 * 120.0)
    pace.observe(9, 1.0, is_settled=True)
    assert pace.seconds_left(19) == pytest.approx(1.0 + 20 * 4.0)
    pace.observe(21, 99.0, is_settled=False)
    assert pace.seconds_left(19) == pytest.approx(1.0 + 20 * 4.0)


def test_pace_estimates_the_remaining_evaluations(facts):
    pace = Pace(replace(facts, evaluation_pflops=1.0))
    pace.observe(8, 1.0, is_settled=True)  # a step of 0.2 PFLOPs: 5 s per PFLOP
    assert pace.seconds_left(25) == pytest.approx(15 * 4.0 + 2 * 5.0)
    pace.add_evaluation(7.0)
    assert pace.seconds_left(25) == pytest.approx(15 * 4.0 + 2 * 7.0)
    assert pace.seconds_left(30) == pytest.approx(10 * 4.0 + 2 * 7.0)  # after steps 30 and 40
    assert pace.seconds_left(31) == pytest.approx(9 * 4.0 + 7.0)
    assert pace.seconds_left(40) == 7.0
