"""The summary of a finished run, compared with manual sums."""

from dataclasses import replace
from pathlib import Path

import pytest

from resnet_recipes.report.summary_text import describe_run
from resnet_recipes.run_folder.facts import PublishedResult, find_nearest
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.run_folder.summary import (
    WeightFiles,
    compute_mlperf_seconds,
    compute_steady_state_seconds,
    time_epochs,
    time_evaluations,
)


def test_training_seconds_exclude_evaluation_and_checkpoints(summary):
    assert summary.training_seconds == 10 * 2 + 10 * 1 + 20 * 4
    assert summary.evaluation_seconds == 4 * 3.0
    assert summary.checkpoint_seconds == 4 * 0.25
    assert summary.compile_seconds == 0.0


def test_compile_seconds_are_reported_separately(recorder, simulator):
    recorder.begin()
    simulator.run(0, 40)
    recorder.log_compilation(20, 1.5)
    recorder.log_compilation(30, 2.5)
    summary = recorder.finish(40, simulator.seconds, WeightFiles(Path("weights.pt")))
    assert summary.compile_seconds == 4.0
    lines = list(describe_run(summary, full=True))
    assert ("", "    0:04   compilation and cuDNN searches") in lines


def test_pflops_count_only_trained_steps(summary, facts):
    assert summary.training_pflops == summary.as_json()["training_pflops"] == 20.0
    assert facts.pflops(25) == 2 + 2 + 8 / 2
    short = replace(facts, total_steps=24)  # the third epoch has four steps
    assert [short.pflops(done) for done in (22, 24)] == [2 + 2 + 8 / 2, 2 + 2 + 8]


def test_steady_state_seconds_time_first_epoch_as_second(summary):
    assert summary.seconds_by_epoch == (20.0, 10.0, 40.0, 40.0)
    assert summary.steady_state_seconds == 10 * 1 + 10 * 1 + 20 * 4
    assert compute_steady_state_seconds(make_records(("epoch", 0.0, {"seconds": 1.0})), 1.0) is None


def test_throughput_skips_first_steps_at_each_size(summary):
    assert list(summary.images_per_second_by_pixels) == [64, 128]
    assert summary.images_per_second_by_pixels[128] == 25.0
    assert summary.images_per_second_by_pixels[64] == pytest.approx(100 * 19 / (9 * 2 + 10 * 1))


def test_throughput_mean_is_weighted_by_time(summary):
    assert summary.images_per_second == pytest.approx(4000 / 110)
    assert summary.data_wait_share == pytest.approx(0.5 * 20 / 110)


def test_summary_of_a_single_evaluation_has_no_best(recorder, simulator):
    recorder.begin()
    recorder.log_evaluation(1, averaged=None, raw=Metrics(80, 95, 1, 500), seconds=3, is_best=True)
    files = WeightFiles(Path("weights.pt"), best=Path("best.pt"))
    summary = recorder.finish(1, simulator.seconds, files)
    assert (summary.best, summary.best_epoch) == (None, None)


def test_summary_best_is_the_last_marked_evaluation(recorder, simulator):
    recorder.begin()
    simulator.run(0, 10)
    for done, top1 in ((11, 70.0), (12, 80.0)):
        raw = Metrics(top1, 95.0, 1.0, 500)
        recorder.log_evaluation(done, averaged=None, raw=raw, seconds=3.0, is_best=True)
    simulator.run(12, 20)
    files = WeightFiles(Path("weights.pt"), best=Path("best.pt"))
    summary = recorder.finish(20, simulator.seconds, files)
    assert (summary.best.top1, summary.best_epoch) == (80.0, 1.2)
    assert summary.evaluations == 4


def test_nearest_published_result_is_chosen_by_epochs(facts, summary):
    assert summary.published.top1 == 76.6
    assert find_nearest(facts.published, 2).top1 == 70.0
    assert find_nearest((), 2) is None
    assert find_nearest((PublishedResult(80.0),), 2).top1 == 80.0


def make_records(*written: tuple[str, float, dict]) -> list[dict]:
    """Return records of given kinds, with their wall seconds and other values."""
    return [{"kind": kind, "wall_seconds": wall, **values} for kind, wall, values in written]


def test_mlperf_clock_includes_evaluations_and_checkpoints():
    one = make_records(
        ("begin", 7.0, {"startup_seconds": 7.0}),
        ("evaluation", 50.0, {"raw_seconds": 0.0}),
        ("saved", 55.0, {}),
        ("evaluation", 90.0, {"raw_seconds": 4.0}),
        ("saved", 95.0, {}),
    )
    assert compute_mlperf_seconds(one) == 90.0 - 4.0 - 7.0
    assert compute_mlperf_seconds(one[:1]) is None


def test_mlperf_clock_counts_repeated_steps_not_startup():
    resumed = make_records(
        ("begin", 7.0, {"startup_seconds": 7.0}),
        ("saved", 30.0, {}),
        # the ten seconds after the checkpoint are lost
        ("begin", 45.0, {"startup_seconds": 5.0}),
        ("evaluation", 60.0, {"raw_seconds": 0.0}),
    )
    assert compute_mlperf_seconds(resumed) == 60.0 - 7.0 - 5.0


def test_epoch_seconds_ignore_records_between_epochs():
    """Epochs have four steps: the first, the second and the tenth end in a record."""
    ends = ((4, 9.0), (8, 15.0), (38, 18.0), (40, 22.0))
    one = make_records(*(("step", 0.0, {"step": end, "training_seconds": at}) for end, at in ends))
    assert time_epochs(one, 4) == {0: 9.0, 1: 6.0, 9: 7.0}
    two = make_records(("evaluation", 0.0, {"seconds": 3.0}), ("saved", 0.0, {"seconds": 1.0}))
    assert time_evaluations(two) == [3.0]
