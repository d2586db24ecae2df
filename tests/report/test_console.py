"""The output on a terminal and through a pipe."""

import io
import re
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.report.console import LiveConsole, PlainConsole, open_console
from resnet_recipes.report.recorder import Recorder
from resnet_recipes.run_folder.facts import PublishedResult
from resnet_recipes.run_folder.metrics import Metrics, StepMetrics
from resnet_recipes.run_folder.summary import WeightFiles
from tests.report.terminals import TerminalStream
from tests.shared.tables import parse_values

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")


@pytest.fixture(autouse=True)
def _use_color_terminal(monkeypatch):
    """Use a color terminal of 80 columns, independent of the test environment."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")


def show_run(facts, driver, console):
    """Simulate a complete run; return its output on both streams."""
    with closing(Recorder(facts, console)) as recorder:
        driver.recorder = recorder
        recorder.begin()
        driver.run(0, 15)
        recorder.log_note(15, "image \x1b[2Jx.jpg is skipped")
        driver.run(15, 40)
        recorder.finish(40, driver.seconds, WeightFiles(Path("weights.pt")))
    return console.err.getvalue(), console.out.getvalue()


def make_console(kind, facts, **options):
    """Return a console and its two streams: terminals for a live console, pipes otherwise."""
    err, out = (
        (TerminalStream(), TerminalStream())
        if kind is LiveConsole
        else (io.StringIO(), io.StringIO())
    )
    console = kind(facts, err, out, **options)
    console.err, console.out = err, out
    return console


def strip_styles(text):
    """Return a text without colors and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")


each_console = pytest.mark.parametrize("kind", [LiveConsole, PlainConsole])


@each_console
@pytest.mark.parametrize("has_top5", [True, False])
def test_progress_omits_top5_of_five_classes_or_fewer(kind, has_top5, facts):
    console = make_console(kind, replace(facts, has_top5=has_top5))
    console.begin(0)
    console.show_evaluation(10, None, Metrics(58.0, 100.0, 1.0, 500, balanced=57.0), 1.0)
    console.close()
    progress = strip_styles(console.err.getvalue()).replace("-", "")
    assert ("top5" in progress) == ("100.00" in progress) == has_top5
    assert "58.00" in progress
    assert "57.00" in progress


def test_open_console_is_live_only_on_a_terminal(facts, monkeypatch):
    assert isinstance(open_console(facts, io.StringIO()), PlainConsole)
    assert isinstance(open_console(facts, TerminalStream()), LiveConsole)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_console(facts, TerminalStream()), PlainConsole)


def test_plain_output_has_one_line_per_event(facts, simulator):
    log, _ = show_run(facts, simulator, make_console(PlainConsole, facts, every=0.0))
    lines = log.splitlines()
    assert all(STAMP.match(line) for line in lines)
    assert "\x1b" not in log
    assert len(lines) == 1 + 40 + 4 + 1
    assert lines[1].endswith("step=1/40 ep=0.10 px=64 loss=1 lr=0.5 img_s=50 wait=0.50 eta_s=198")
    assert "eval step=10/40 ep=1.00 top1=58.00 top5=90.00" in log


@pytest.mark.parametrize(
    ("rate", "expected"), [(13190.44, "13190"), (194.73, "194.7"), (0.031, "0.031")]
)
def test_plain_output_writes_any_speed(rate, expected, facts):
    console = make_console(PlainConsole, facts)
    console.begin(0)
    console.show_step(StepMetrics(1, 1, 1.0, 0.5, 64, 2.0, rate, 0.5), None)
    assert f" img_s={expected} " in console.err.getvalue()


@each_console
@pytest.mark.parametrize(("balanced", "is_shown"), [(50.0, False), (41.5, True)])
def test_balanced_accuracy_is_shown_if_different(balanced, is_shown, kind, facts):
    console = make_console(kind, facts)
    with closing(Recorder(facts, console)) as recorder:
        recorder.begin()
        metrics = Metrics(50, 90, 1.0, 500, balanced)
        recorder.log_evaluation(10, averaged=None, raw=metrics, seconds=1)
        summary = recorder.finish(10, 1.0, WeightFiles(Path("weights.pt")))
    err = console.err.getvalue()
    out = console.out.getvalue()
    assert ("41.50" in err) == ("balanced" in err) == ("balanced 41.50%" in out) == is_shown
    assert summary.as_json()["raw_balanced_percent"] == balanced


def test_plain_output_throttles_steps_but_not_evaluations(facts, simulator):
    log, _ = show_run(facts, simulator, make_console(PlainConsole, facts))
    assert log.count(" eval ") == 4
    steps = [line.split()[1] for line in log.splitlines() if " px=" in line]
    assert steps == ["step=1/40", "step=40/40"]


def test_live_display_fits_in_80_columns(facts, simulator):
    text = strip_styles(show_run(facts, simulator, make_console(LiveConsole, facts))[0])
    assert "epoch 0.1 of 4" in text
    assert "64 px   loss 1.000   lr 0.5   50 images/s   data wait 50%" in text
    assert "3:18 left" in text
    assert "EMA top-1" in text
    assert max(map(len, text.splitlines())) <= 80


def test_live_console_shows_cursor_after_an_exception(facts):
    console = make_console(LiveConsole, facts)
    with suppress(KeyboardInterrupt), closing(Recorder(facts, console)) as recorder:
        recorder.begin()
        raise KeyboardInterrupt
    text = console.err.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_no_color_disables_color(facts, simulator, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    log, page = show_run(facts, simulator, make_console(LiveConsole, facts))
    assert not re.search(r"\x1b\[[0-9;]*3[0-7][;m]", log + page)


def test_full_bar_has_another_color_than_empty_bar(facts, simulator, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # 16 colors
    log, _ = show_run(facts, simulator, make_console(LiveConsole, facts))
    bar = log[: log.rindex("100%")].rpartition("epoch ")[2]
    assert "\x1b[32m" in bar
    assert "\x1b[90m" not in bar


@each_console
def test_console_escapes_control_characters(kind, facts, simulator):
    published = (PublishedResult(76.6, 5, 27, "A100\x1b[2J", "\u202e"),)
    hostile = replace(facts, recipe="mi\x1b[2Jld", devices="CPU\u202e", published=published)
    console = make_console(kind, hostile)
    _, page = show_run(hostile, simulator, console)
    console.show_stop(15, "x\x1b[2J", "y\u202e")
    log = console.err.getvalue()
    assert "\x1b[2J" not in log + page
    assert "\u202e" not in log + page
    assert "image \\x1b[2Jx.jpg is skipped" in log
    assert "x\\x1b[2J" in log
    assert "resume: y\\u202e" in log
    assert "A100\\x1b[2J; \\u202e" in page
    assert "CPU\\u202e" in page


@pytest.mark.parametrize("full", [True, False])
@each_console
def test_result_goes_to_stdout_without_the_log(kind, full, facts, simulator):
    facts = replace(facts, shows_all_times=full)
    log, page = show_run(facts, simulator, make_console(kind, facts))
    page = strip_styles(page)
    assert "top-1 89.00%   top-5 90.00%   on 500 images (EMA)" in page
    assert "1:50 without evaluations and checkpoints" in page
    published = "published   top-1 76.60% after 5 epochs in 27 min\n"
    assert f"{published}              8 x A100; the paper\n" in page
    assert ("25 images/s at 128 px" in page) == full
    assert "1:50 without" not in log
    assert "step=" not in page
    page = page.replace(str(facts.folder), "runs/a").replace(str(facts.folder.parent), "runs")
    assert [line for line in page.splitlines() if len(line) > 80] == []


def test_live_bar_moves_between_logged_steps(facts, monkeypatch):
    console = make_console(LiveConsole, facts)
    now = 10.0
    monkeypatch.setattr("resnet_recipes.report.console.time.monotonic", lambda: now)
    console.begin(0)
    console.show_done(4)
    now = 10.5  # less than a second later
    console.show_done(8)
    console.show_step(StepMetrics(12, 12, 1.0, 0.5, 64, 2.0, 50.0, 0.5), 17.0)
    now = 12.0
    console.show_done(16)
    console.close()
    screen = strip_styles(console.err.getvalue())
    assert screen.index("reading the first images") < screen.index("epoch 0.4 of 4")
    assert "epoch 0.8 of 4" not in screen
    assert screen.index("epoch 0.4 of 4") < screen.index("epoch 1.6 of 4")
    assert screen.count("data wait 50%") >= 2


def test_live_console_counts_evaluated_images(facts, monkeypatch):
    console = make_console(LiveConsole, facts)
    now = 0.0
    monkeypatch.setattr("resnet_recipes.report.console.time.monotonic", lambda: now)
    console.begin(0)
    console.show_step(StepMetrics(40, 1, 1.0, 0.5, 64, 2.0, 50.0, 0.5), 17.0)
    for seconds, images in ((1.0, 0), (1.05, 32), (5.0, 64), (18.0, 128)):
        now = seconds
        console.show_evaluating(40, images, 153)
    console.close()
    screen = strip_styles(console.err.getvalue())
    assert "evaluating: 0 of 153 images" in screen
    assert "32 of 153" not in screen  # less than 0.1 s later
    assert screen.index("0:12 left") < screen.index("evaluating: 64 of 153 images")
    assert "0:00 left" not in screen


def test_live_console_shows_figures_after_an_evaluation(facts):
    console = make_console(LiveConsole, facts)
    console.begin(0)
    console.show_step(StepMetrics(40, 1, 1.0, 0.5, 64, 2.0, 50.0, 0.5), 17.0)
    console.show_evaluating(40, 153, 153)
    console.show_evaluation(40, None, Metrics(58.0, 100.0, 1.0, 153), 1.0)
    console.close()
    after = strip_styles(console.err.getvalue()).rpartition("58.00")[2]
    assert "data wait 50%" in after
    assert "evaluating" not in after


def test_live_display_counts_hundredths_below_an_epoch(facts):
    with closing(make_console(LiveConsole, replace(facts, total_steps=5))) as console:
        console.begin(4)
    assert "epoch 0.40 of 0.5" in strip_styles(console.err.getvalue())


def test_plain_summary_wraps_at_columns_if_set(facts, simulator, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    page = show_run(facts, simulator, make_console(PlainConsole, facts))[1]
    assert len(next(line for line in page.splitlines() if "without eval" in line)) <= 50
    monkeypatch.delenv("COLUMNS")
    page = show_run(facts, simulator, make_console(PlainConsole, facts))[1]
    assert len(next(line for line in page.splitlines() if "without eval" in line)) > 50


def test_live_row_covers_steps_since_the_last_row(facts):
    console = make_console(LiveConsole, facts)
    with closing(Recorder(facts, console)) as recorder:
        recorder.begin()
        for done, steps, loss, seconds, speed in parse_values(
            """
4 | 4 | 5.0 | 8.0 | 50.0
10 | 6 | 3.0 | 20.0 | 50.0
14 | 4 | 2.0 | 24.0 | 100.0
20 | 6 | 1.0 | 27.0 | 200.0
"""
        ):
            recorder.log_step(StepMetrics(done, steps, loss, 0.1, 64, seconds, speed, 0.0))
            if done % 10 == 0:
                recorder.log_evaluation(
                    done, averaged=None, raw=Metrics(50, 90, 1.0, 500), seconds=1
                )
    lines = strip_styles(console.err.getvalue()).splitlines()
    rows = [line.split() for line in lines if "50.00" in line]
    assert [f"{row[0]} {row[2]} {row[5]}" for row in rows] == ["1.00 3.800 50", "2.00 1.400 143"]
