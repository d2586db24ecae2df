"""The text at the end of a run: its content and its omissions."""

from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.report.summary_text import describe_run, format_title
from resnet_recipes.run_folder.facts import PublishedResult
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.run_folder.summary import WeightFiles


def format_page(summary, full=False):
    return "\n".join(f"{label}|{text}" for label, text in describe_run(summary, full))


def test_published_result_is_compared_only_at_similar_epochs(summary):
    near = replace(summary, published=PublishedResult(88.5, 4, 27, "8 x A100", "the paper"))
    assert "|this run: +0.50 points" in format_page(near)
    assert "|this run: -0.50 points" in format_page(replace(near, ema=None))
    far = replace(summary, published=PublishedResult(88.5, 5, 27, "8 x A100", "the paper"))
    assert "after 5 epochs" in format_page(far)
    assert "this run" not in format_page(far)
    assert " after 4 epochs in 27 min\n" in format_page(near)
    timed = replace(near.published, clock="MLPerf")
    assert " after 4 epochs in 27 min on MLPerf's clock\n" in format_page(
        replace(near, published=timed)
    )


def test_title_counts_epochs_and_sessions(summary):
    assert "1 epoch, 40 steps" in format_title(replace(summary, epochs=1.0))
    assert "4 epochs, 40 steps" in format_title(replace(summary, epochs=4.0))
    assert "sessions" not in format_title(summary)
    assert "in 3 sessions" in format_title(replace(summary, sessions=3))


def test_summary_shows_cost_of_the_wall_time(summary):
    assert "\ncost|" not in format_page(summary)
    paid = replace(summary, price_per_hour=1.2, cost=0.05)
    assert "\ncost|$0.05 at $1.20 per hour, for the wall time\n" in format_page(paid)


def test_summary_lists_raw_weights_only_in_full(summary):
    both = replace(summary, raw_weights="runs/one/weights-raw.safetensors")
    average = "on 500 images (EMA)"
    assert f"accuracy|top-1 89.00%   top-5 90.00%   {average}" in format_page(both)
    assert "weights|weights.safetensors\n" in format_page(both)
    assert "weights-raw" not in format_page(both)
    assert "|top-1 88.00%   top-5 90.00%   weights-raw.safetensors" in format_page(both, full=True)


def test_interval_of_the_accuracy_is_printed(summary):
    raw = Metrics(95.42, 100.0, 1.0, 153, 95.34)
    text = format_page(replace(summary, ema=None, raw=raw))
    assert "accuracy|top-1 95.42%   balanced 95.34%   on 153 images\n" in text
    assert "\n|95% interval of top-1: 90.9 to 97.8%\n" in text  # Wilson, for 146 of 153


def test_best_weights_are_listed_as_optimistic(recorder, simulator):
    recorder.begin()
    simulator.run(0, 40)
    for step, top1 in ((30, 91.0), (40, 90.0)):
        raw = Metrics(top1, 95.0, 1.0, 500)
        recorder.log_evaluation(step, averaged=None, raw=raw, seconds=1, is_best=step == 30)
    files = WeightFiles(Path("weights.safetensors"), best=Path("weights-best.x"))
    summary = recorder.finish(40, 9, files)
    text = format_page(summary)
    assert "accuracy|top-1 90.00%" in text
    assert (
        f"|top-1 91.00%   top-5 95.00%   epoch 3, best of {summary.evaluations} evaluations" in text
    )
    assert "|weights-best.x (optimistic: chosen on these images)\n" in text
    assert summary.as_json()["best_top1_percent"] == 91


@pytest.mark.parametrize("tops", [(91.0, 91.5, 91.0), (90.0, 91.0, 91.0)])
def test_best_evaluation_is_listed_unless_it_is_last(tops, recorder, simulator):
    recorder.begin()
    simulator.run(0, 40)
    for step, top1 in zip((20, 30, 40), tops, strict=True):
        recorder.log_evaluation(step, averaged=None, raw=Metrics(top1, 95.0, 1.0, 500), seconds=1)
    summary = recorder.finish(40, 9, WeightFiles(Path("weights.safetensors")))
    text = format_page(summary)
    row = f"|top-1 91.50%   top-5 95.00%   epoch 3, best of {summary.evaluations} evaluations\n"
    assert (row in text) == ("best of" in text) == (max(tops) > 91)


def test_summary_ends_with_the_next_commands(summary):
    *_, report, last = describe_run(replace(summary, folder="my runs/one"))
    assert report == ("curves", "resnet-recipes report 'my runs'")
    assert last == ("predict", "resnet-recipes predict 'my runs/one' IMAGE ...")


def test_ema_far_behind_raw_weights_is_a_warning(summary):
    behind = replace(
        summary, raw_weights="weights-raw.safetensors", raw=summary.raw._replace(top1=91.5)
    )
    assert "WARNING: EMA is 2.50 points worse than the raw weights" in format_page(behind)
    assert "methods.ema.half_life=1ba" in format_page(behind)
    assert "WARNING" not in format_page(replace(behind, raw=summary.raw._replace(top1=89.9)))


def test_summary_omits_rows_of_unknown_values(summary):
    clocks = {"steady_state_seconds": None, "mlperf_seconds": None}
    bare = format_page(replace(summary, published=None, ema=None, **clocks))
    for word in ("published", "EMA", "steady state", "MLPerf", "None"):
        assert word not in bare


def test_summary_lists_other_clocks_only_in_full(summary):
    timed = replace(summary, mlperf_seconds=120.0)
    assert "training|1:50 without evaluations and checkpoints" in format_page(timed)
    assert "MLPerf" not in format_page(timed)
    assert "steady" not in format_page(timed)
    every = format_page(timed, full=True)
    assert "times|    1:40   steady state: first epoch" in every
    assert "|    2:00   MLPerf's clock: from first image to last evaluation" in every
    assert "compute|20 PFLOPs (10^15 operations)" in every


def test_wall_time_is_the_sum_of_its_parts(summary):
    timed = replace(
        summary, training_seconds=12, evaluations=10, evaluation_seconds=40, wall_seconds=62
    )
    timed = replace(timed, startup_seconds=6, checkpoint_seconds=2)
    parts = "training 0:12 + 10 evaluations 0:40 + startup 0:06 + checkpoints 0:02"
    assert f"wall time|1:02 = {parts} + other 0:02\n" in format_page(timed)
    assert f"wall time|1:00 = {parts}\n" in format_page(replace(timed, wall_seconds=60))
    split = replace(timed, evaluation_seconds=40.7, startup_seconds=6.7, checkpoint_seconds=0.7)
    parts = "training 0:12 + 10 evaluations 0:40 + startup 0:06 + other 0:02"
    assert f"wall time|1:00 = {parts}\n" in format_page(replace(split, wall_seconds=60.1))


def test_estimate_stands_next_to_the_training_time(summary):
    assert "estimated" not in format_page(summary)
    estimated = replace(summary, estimated_seconds=1.1 * summary.training_seconds)
    assert "checkpoints (estimated 2:01)\n" in format_page(estimated)


def test_summary_shortens_paths_below_the_current_folder(summary):
    here = Path.cwd()
    paths = {"folder": f"{here}/runs/one", "weights": f"{here}/runs/one/w.x"}
    text = format_page(replace(summary, **paths), full=True)
    assert str(here) not in text
    assert "\nresults|runs/one\nweights|runs/one/w.x\ncurves|resnet-recipes report runs\n" in text
    assert "results|/runs/one\n" in format_page(replace(summary, folder="/runs/one"))
