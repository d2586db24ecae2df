"""The record of a run is complete, has no repetitions, and never blocks training."""

import json
import math
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from resnet_recipes.report import recorder as module
from resnet_recipes.report.recorder import Recorder
from resnet_recipes.run_folder.metrics import StepMetrics, read_metrics
from resnet_recipes.run_folder.summary import WeightFiles


def read_steps(folder, kind="step"):
    return [
        record["step"]
        for record in read_metrics(folder / "metrics.jsonl")
        if record["kind"] == kind
    ]


def test_recorder_writes_each_record_immediately(recorder, simulator, facts):
    recorder.begin()
    simulator.run(0, 3)
    last = (facts.folder / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["step"] == 3
    assert json.loads(last)["epoch"] == 0.3


def test_resumed_run_records_every_step_once(recorder, simulator, facts, console):
    recorder.begin()
    simulator.run(0, 17)
    again = Recorder(facts, console)
    simulator.recorder = again
    again.begin(done=10, seconds=20.0)
    simulator.seconds = 20.0
    simulator.run(10, 40)
    assert read_steps(facts.folder) == list(range(1, 41))
    assert read_steps(facts.folder, "evaluation") == [10, 20, 30, 40]
    assert read_steps(facts.folder, "begin") == [0, 10]


def test_missing_evaluation_is_recorded_once_on_resume(recorder, simulator, facts, console):
    recorder.begin()
    simulator.run(0, 27)
    Recorder(facts, console).begin(done=20, has_pending_evaluation=True)
    assert read_steps(facts.folder, "evaluation") == [10]
    assert read_steps(facts.folder) == list(range(1, 21))


@pytest.fixture
def ticking_clock(monkeypatch):
    """Advance the clock by ten seconds at each reading."""
    ticks = count(1000, 10)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(ticks), time=float))


def test_wall_time_continues_across_sessions(facts, console, ticking_clock):
    for _ in range(2):
        recorder = Recorder(facts, console)
        recorder.begin()
        recorder.log_note(0, "here")
    first, second = (
        record["wall_seconds"]
        for record in read_metrics(facts.folder / "metrics.jsonl")
        if record["kind"] == "note"
    )
    assert first > 0
    assert second == 2 * first


def test_truncated_line_loses_only_one_record(recorder, simulator, facts):
    recorder.begin()
    simulator.run(0, 2)
    path = facts.folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    simulator.run(2, 4)
    assert read_steps(facts.folder) == [1, 3, 4]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_nonfinite_loss_is_written_and_read_as_null(loss, recorder, facts):
    recorder.begin()
    recorder.log_step(StepMetrics(1, 1, loss, 0.1, 64, 1.0, 900.0, 0.0))
    text = (facts.folder / "metrics.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert read_metrics(facts.folder / "metrics.jsonl")[-1]["loss"] is None


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full"
)
def test_recorder_reports_full_disk_once_and_continues(recorder, simulator, facts, console):
    recorder.begin()
    path = facts.folder / "metrics.jsonl"
    path.unlink()
    path.symlink_to("/dev/full")
    simulator.run(0, 40)
    summary = recorder.finish(40, simulator.seconds, WeightFiles(Path("weights.pt")))
    (note,) = console.show_note.call_args_list
    assert "cannot write results" in note.args[0]
    assert summary.sessions == 1


def test_missing_folder_fails_the_run_at_its_end(recorder, simulator, facts, console):
    facts.folder.rmdir()
    recorder.begin()
    simulator.run(0, 40)
    with pytest.raises(FileNotFoundError):
        recorder.finish(40, simulator.seconds, WeightFiles(Path("weights.pt")))
    console.show_note.assert_called_once()
    console.show_result.assert_called_once()


def test_summary_file_has_numbers_with_units(summary, facts):
    summary_file = json.loads((facts.folder / "summary.json").read_text())
    assert (summary_file["ema_top1_percent"], summary_file["raw_top1_percent"]) == (89.0, 88.0)
    assert summary_file["training_seconds"] == 110.0
    assert summary_file["images_per_second_by_pixels"]["128"] == 25.0
    assert summary_file["published"]["top1_percent"] == 76.6
    assert "top1" not in summary_file["published"]
    assert not list(facts.folder.glob("*.part"))


def test_console_gets_the_estimate_of_the_run(recorder, simulator, console):
    recorder.begin()
    simulator.run(0, 20)
    assert console.show_step.call_args.args[1] == pytest.approx(20 * 4.0 + 2 * 3.0 + 3.0, rel=0.15)


def test_stop_is_recorded_with_its_reason(recorder, simulator, facts, console):
    recorder.begin()
    simulator.run(0, 5)
    recorder.log_stop(5, "the loss is not a number", "optimizer.lr=1.0")
    assert read_metrics(facts.folder / "metrics.jsonl")[-1]["reason"] == "the loss is not a number"
    console.show_stop.assert_called_once_with(5, "the loss is not a number", "optimizer.lr=1.0")


def test_cost_is_the_price_of_the_wall_time(facts, console, ticking_clock):
    """The clock is read four times."""
    recorder = Recorder(replace(facts, price_per_hour=120.0), console)
    recorder.begin()
    summary = recorder.finish(40, 9.0, WeightFiles(facts.folder / "weights.pt"))
    assert summary.wall_seconds == 30
    record = json.loads((facts.folder / "summary.json").read_text())
    assert (record["price_per_hour"], record["cost"]) == (120.0, pytest.approx(1.0))
    begin = read_metrics(facts.folder / "metrics.jsonl")[0]
    assert begin["price_per_hour"] == 120.0
