"""What a person sees, on a terminal and through a pipe."""

import io
import re
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.report.console import LiveConsole, PlainConsole, open_console
from resnet_recipes.report.recorder import Recorder
from resnet_recipes.run_folder.facts import Published
from resnet_recipes.run_folder.metrics import Metrics, Progress
from tests.report.conftest import Terminal

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """A colour terminal of 80 columns, whatever runs the tests."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")


def shown(facts, driver, console, err, out):
    """Return what a whole run prints on both streams."""
    with closing(Recorder(facts.folder, facts, console)) as recorder:
        driver.recorder = recorder
        recorder.begin()
        driver.run(0, 15)
        recorder.note(15, "image \x1b[2Jx.jpg is skipped")
        driver.run(15, 40)
        recorder.finish(40, seconds=driver.seconds, weights=Path("weights.pt"))
    return err.getvalue(), out.getvalue()


def test_a_pipe_gets_plain_lines_and_a_terminal_the_live_display(monkeypatch):
    assert isinstance(open_console(io.StringIO(), io.StringIO()), PlainConsole)
    assert isinstance(open_console(Terminal(), io.StringIO()), LiveConsole)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_console(Terminal(), io.StringIO()), PlainConsole)


def test_plain_output_is_one_unwrapped_line_per_event(facts, driver):
    err, out = io.StringIO(), io.StringIO()
    log, _ = shown(facts, driver, PlainConsole(err, out, every=0.0), err, out)
    lines = log.splitlines()
    assert all(STAMP.match(line) for line in lines)
    assert "\x1b" not in log
    assert len(lines) == 1 + 40 + 4 + 1
    assert lines[1].endswith("step=1/40 ep=0.10 px=64 loss=1 lr=0.5 img_s=50 wait=0.50 eta_s=198")
    assert "eval step=10/40 ep=1.00 top1=58.00 top5=90.00" in log


@pytest.mark.parametrize(
    ("rate", "shown"), [(13190.44, "13190"), (194.73, "194.7"), (0.031, "0.031")]
)
def test_any_speed_is_written_out(rate, shown, facts):
    err = io.StringIO()
    console = PlainConsole(err, io.StringIO())
    console.begin(facts, 0)
    console.step(Progress(1, 1, 1.0, 0.5, 64, 2.0, rate, 0.5), None)
    assert f" img_s={shown} " in err.getvalue()


def test_balanced_accuracy_is_shown_where_it_differs_from_top1(facts):
    equal, unequal = Metrics(50, 90, 1.0, 500, 50.0), Metrics(50, 90, 1.0, 500, 41.5)
    for metrics, is_shown in ((equal, False), (unequal, True)):
        for console in (PlainConsole, LiveConsole):
            err, out = Terminal(), Terminal()
            with closing(Recorder(facts.folder, facts, console(err, out))) as recorder:
                recorder.begin()
                recorder.evaluation(10, averaged=None, raw=metrics, seconds=1)
                summary = recorder.finish(10, seconds=1.0, weights=Path("weights.pt"))
            assert ("41.50" in err.getvalue()) == is_shown
            assert ("balanced" in err.getvalue()) == is_shown
            assert ("balanced 41.50 %" in out.getvalue()) == is_shown
            assert summary.as_json()["raw_balanced_percent"] == metrics.balanced


def test_plain_output_is_not_flooded_but_has_every_evaluation_and_the_last_step(facts, driver):
    err, out = io.StringIO(), io.StringIO()
    log, _ = shown(facts, driver, PlainConsole(err, out), err, out)
    assert log.count(" eval ") == 4
    assert [line.split()[1] for line in log.splitlines() if " px=" in line] == [
        "step=1/40",
        "step=40/40",
    ]


def test_the_live_display_shows_the_whole_state_within_80_columns(facts, driver):
    err, out = Terminal(), Terminal()
    log, _ = shown(facts, driver, LiveConsole(err, out), err, out)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", log).replace("\r", "\n")
    assert "epoch 0.1 of 4" in text
    assert "64 px   loss 1.000   lr 0.5   50 images/s   data wait 50 %" in text
    assert "3:18 left" in text
    assert "EMA top-1" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_cursor_comes_back_even_after_an_exception(facts):
    err = Terminal()
    with (
        suppress(KeyboardInterrupt),
        closing(Recorder(facts.folder, facts, LiveConsole(err, Terminal()))) as recorder,
    ):
        recorder.begin()
        raise KeyboardInterrupt
    assert err.getvalue().rindex("\x1b[?25h") > err.getvalue().rindex("\x1b[?25l")


def test_no_color_means_no_colour(facts, driver, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    err, out = Terminal(), Terminal()
    log, page = shown(facts, driver, LiveConsole(err, out), err, out)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7][;m]", log + page)


@pytest.mark.parametrize("live", [True, False])
def test_no_name_can_act_on_the_terminal(live, facts, driver):
    err, out = (Terminal(), Terminal()) if live else (io.StringIO(), io.StringIO())
    published = (Published(76.6, 5, 27, "A100\x1b[2J", "\u202e"),)
    hostile = replace(facts, recipe="mi\x1b[2Jld", devices="CPU\u202e", published=published)
    console = LiveConsole(err, out) if live else PlainConsole(err, out)
    log, page = shown(hostile, driver, console, err, out)
    console.stopped(15, "x\x1b[2J", "y\u202e")
    log = err.getvalue()
    assert "\x1b[2J" not in log + page
    assert "\u202e" not in log + page
    assert "image \\x1b[2Jx.jpg is skipped" in log
    assert "x\\x1b[2J" in log
    assert "A100\\x1b[2J; \\u202e" in page
    assert "CPU\\u202e" in page


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("live", [True, False])
def test_the_result_goes_to_the_output_stream_and_the_log_does_not(live, full, facts, driver):
    err, out = (Terminal(), Terminal()) if live else (io.StringIO(), io.StringIO())
    console = LiveConsole(err, out) if live else PlainConsole(err, out)
    log, page = shown(replace(facts, shows_all_times=full), driver, console, err, out)
    page = re.sub(r"\x1b\[[0-9;]*m", "", page)
    assert "top-1 89.00 %   top-5 90.00 %   on 500 images (EMA)" in page
    assert "1:50 without evaluations and checkpoints" in page
    assert (
        "published   top-1 76.60 % after 5 epochs in 27 min\n              8 x A100; the paper\n"
        in page
    )
    assert ("25 images/s at 128 px" in page) == full
    assert "1:50 without" not in log
    assert "step=" not in page
    assert max(map(len, page.replace(str(facts.folder.parent), "runs").splitlines())) <= 80


def test_a_row_of_the_live_table_has_the_figures_of_the_steps_since_the_row_before(facts):
    err = Terminal()
    with closing(Recorder(facts.folder, facts, LiveConsole(err, Terminal()))) as recorder:
        recorder.begin()
        for done, steps, loss, seconds, speed in (
            (4, 4, 5.0, 8.0, 50.0),
            (10, 6, 3.0, 20.0, 50.0),
            (14, 4, 2.0, 24.0, 100.0),
            (20, 6, 1.0, 27.0, 200.0),
        ):
            recorder.step(Progress(done, steps, loss, 0.1, 64, seconds, speed, 0.0))
            if done % 10 == 0:
                recorder.evaluation(done, averaged=None, raw=Metrics(50, 90, 1.0, 500), seconds=1)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err.getvalue()).replace("\r", "\n")
    rows = [line.split() for line in text.splitlines() if "50.00" in line]
    assert [(row[0], row[2], row[5]) for row in rows] == [
        ("1", "3.800", "50"),
        ("2", "1.400", "143"),
    ]


@pytest.mark.parametrize("live", [True, False])
def test_stopping_says_why_and_what_to_type(live, facts):
    err = Terminal() if live else io.StringIO()
    console = LiveConsole(err, io.StringIO()) if live else PlainConsole(err, io.StringIO())
    with closing(Recorder(facts.folder, facts, console)) as recorder:
        recorder.begin()
        recorder.evaluation(10, averaged=None, raw=Metrics(50, 90, 1.0, 500), seconds=1)
        recorder.stopped(12, "Ctrl-C; the checkpoint is saved", "resnet-train --resume runs/mild")
    assert "Ctrl-C; the checkpoint is saved" in err.getvalue()
    assert "resnet-train --resume runs/mild" in err.getvalue()
