"""The page at the end: what it says, and what it leaves unsaid."""

from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.report.closing import rows, title
from resnet_recipes.report.facts import Published


@pytest.fixture
def summary(recorder, driver):
    recorder.begin()
    driver.run(0, 40)
    return recorder.finish(40, seconds=driver.seconds, weights=Path("weights.pt"))


def page(summary):
    return "\n".join(f"{label}|{text}" for label, text in rows(summary))


def test_a_run_is_compared_with_a_published_one_only_at_about_the_same_length(summary):
    near = replace(summary, published=Published(88.5, 4, 27, "8 x A100", "the paper"))
    assert "|this run: +0.50 points" in page(near)
    far = replace(summary, published=Published(88.5, 5, 27, "8 x A100", "the paper"))
    assert "after 5 epochs" in page(far)
    assert "this run" not in page(far)


def test_each_weights_file_is_named_with_its_accuracy(summary):
    both = page(replace(summary, raw_weights="runs/one/weights-raw.pt"))
    assert "accuracy|top-1 89.00 %   top-5 90.00 %   weights.pt: EMA, 500 images" in both
    assert "|top-1 88.00 %   top-5 90.00 %   weights-raw.pt" in both
    assert "weights|weights.pt\n|runs/one/weights-raw.pt" in both


def test_the_last_line_makes_the_report(summary):
    assert list(rows(replace(summary, folder="my runs/one")))[-1] == (
        "curves",
        "resnet-recipes report 'my runs'",
    )


def test_an_average_far_behind_its_weights_is_a_warning_with_what_to_use(summary):
    behind = replace(summary, raw_weights="weights-raw.pt", raw=summary.raw._replace(top1=91.5))
    assert "WARNING: EMA is 2.50 points behind: use weights-raw.pt." in page(behind)
    assert "methods.ema.half_life=1ba" in page(behind)
    assert "WARNING" not in page(replace(behind, raw=summary.raw._replace(top1=89.9)))


def test_the_published_accuracy_is_compared_with_the_averaged_weights(summary):
    published = Published(88.0, 4)
    assert "+1.00 points" in page(replace(summary, published=published))
    assert "+0.00 points" in page(replace(summary, published=published, ema=None))


def test_nothing_is_said_about_the_unknown(summary):
    bare = page(
        replace(
            summary,
            published=None,
            ema=None,
            training_seconds_papers_rule=None,
            mlperf_seconds=None,
        )
    )
    for word in ("published", "EMA", "papers' clock", "MLPerf", "None"):
        assert word not in bare


def test_every_clock_is_named(summary):
    assert "training|    1:50   without evaluation and checkpoints" in page(summary)
    assert "|      20   PFLOPs, forward and backward" in page(summary)
    assert "|    1:40   papers' clock: the first epoch timed as the second" in page(summary)
    timed = page(replace(summary, mlperf_seconds=120.0))
    assert "|    2:00   MLPerf's clock: from first image to last evaluation" in timed


def test_a_resumed_run_says_in_how_many_sessions_it_ran(summary):
    assert "sessions" not in title(summary)
    assert "in 3 sessions" in title(replace(summary, sessions=3))


def test_an_estimate_is_held_against_the_time_that_was_needed(summary):
    assert "estimated" not in page(summary)
    assert "estimated before the start: +10 %" in page(
        replace(summary, estimated_seconds=1.1 * summary.training_seconds)
    )
