"""Data sent to trackers, read back with the readers of each tracker."""

import csv
import io
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from resnet_recipes.base.duration import Recurrence
from resnet_recipes.base.extras import suggest_install
from resnet_recipes.recipe.sections import LogConfig
from resnet_recipes.report import trackers
from resnet_recipes.report.console import PlainConsole
from resnet_recipes.report.recorder import Recorder
from resnet_recipes.report.trackers import BackgroundTracker, find_tracker_problems, open_trackers
from resnet_recipes.run_folder.facts import RunFacts
from resnet_recipes.run_folder.metrics import Metrics, StepMetrics
from resnet_recipes.run_folder.summary import WeightFiles
from tests.report.trackers.tracker_packages import TRACKED_SETTINGS, skip_without


def record_session(
    folder: Path, names: list[str], steps: range, first: int = 0, ends: bool = False
) -> list[str]:
    """Record a few steps, an evaluation, and the end of the run.

    Returns the warnings, except that a tracker is slow, which happens on a busy machine.
    """
    facts = RunFacts("small", folder, 20, 10, 16, (10**9, 10**9), Recurrence(10, 20), "CPU")
    trackers = open_trackers(names, folder, TRACKED_SETTINGS)
    stream = io.StringIO()
    console = PlainConsole(facts, stream, stream)
    with closing(Recorder(facts, console, trackers=trackers)) as recorder:
        recorder.begin(first)
        for step in steps:
            recorder.log_step(StepMetrics(step, 1, 1 / step, 0.1, 32, 1.0 * step, 16.0, 0.0))
        recorder.log_evaluation(
            steps[-1], averaged=Metrics(70.0, 90.0, 1.5, 100), raw=None, seconds=1.0
        )
        if ends:
            recorder.finish(steps[-1], 1.0 * steps[-1], WeightFiles(folder / "weights.pt"))
    lines = stream.getvalue().splitlines()
    return [line for line in lines if "log.to" in line and "waiting up to" not in line]


@skip_without("tensorboard")
def test_tensorboard_curves_continue_on_resume(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert record_session(tmp_path, ["tensorboard"], range(1, 9)) == []
    time.sleep(1.1)  # event files are sorted by creation time in seconds
    assert record_session(tmp_path, ["tensorboard"], range(6, 11), first=5) == []
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 11))
    assert events.Scalars("train/loss")[3].value == pytest.approx(0.25)
    assert events.Scalars("val/ema_top1")[-1].value == 70.0
    assert read_settings(events) == TRACKED_SETTINGS | {"data.crop_scale": "[0.5, 1.0]"}


def read_settings(events: Any) -> dict[str, object]:
    """Return the hyperparameters of a run, as the TensorBoard plugin reads them."""
    from tensorboard.plugins.hparams import metadata

    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    parameters = metadata.parse_session_start_info_plugin_data(content).hparams
    return {key: getattr(value, value.WhichOneof("kind")) for key, value in parameters.items()}


@skip_without("mlflow")
def test_mlflow_run_continues_on_resume(tmp_path, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "runs/mine"
    folder.mkdir(parents=True)
    (folder / "provenance.json").write_text('{"recipe": "mild", "git_commit": "1a2b"}')
    assert record_session(folder, ["mlflow"], range(1, 9)) == []
    client = MlflowClient((tmp_path / "runs/mlruns").as_uri())
    experiment = client.get_experiment_by_name("resnet-recipes").experiment_id
    assert [run.info.status for run in client.search_runs([experiment])] == ["KILLED"]
    assert record_session(folder, ["mlflow"], range(6, 11), first=5, ends=True) == []
    (run,) = client.search_runs([experiment])
    assert run.info.status == "FINISHED"
    tags = {"recipe": "mild", "git_commit": "1a2b", "state": "finished"}
    assert tags.items() <= run.data.tags.items()
    assert run.data.params["data.flip"] == "true"
    assert run.data.params["data.crop_scale"] == "[0.5, 1.0]"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert [metric.step for metric in history] == [*range(1, 11)]
    assert run.data.metrics["val/ema_top1"] == 70.0


@skip_without("wandb")
def test_wandb_run_continues_on_resume(tmp_path, monkeypatch):
    init = Mock()
    monkeypatch.setattr("wandb.init", init)
    assert record_session(tmp_path, ["wandb"], range(1, 6)) == []
    assert record_session(tmp_path, ["wandb"], range(6, 9), first=5, ends=True) == []
    run_id = (tmp_path / "wandb-run").read_text()
    assert [logged.kwargs["id"] for logged in init.call_args_list] == [run_id] * 2
    run = init.return_value
    logged = [(call.kwargs["step"], *call.args) for call in run.log.call_args_list]
    assert [step for step, values in logged if "train/loss" in values] == [*range(1, 9)]
    assert [step for step, values in logged if values.get("val/ema_top1") == 70.0] == [5, 8]
    assert run.finish.call_args_list == [call(exit_code=255), call(exit_code=0)]


def test_csv_drops_repeated_rows_on_resume(tmp_path):
    record_session(tmp_path, ["csv"], range(1, 9))
    record_session(tmp_path, ["csv"], range(6, 11), first=5)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows if row["train/loss"]] == list(range(1, 11))
    assert rows[-1]["val/ema_top1"] == "70.0"


def list_messages_of_end(tracker: BackgroundTracker, seconds: float = 0.0) -> list[str]:
    """Return what a tracker prints at the end of a run that ended `seconds` ago."""
    messages: list[str] = []
    tracker.end(is_finished=True)
    tracker.wait(messages.append, time.monotonic() - seconds)
    return messages


def test_failing_tracker_is_reported_once():
    failing = Mock(begin=Mock(side_effect=SystemExit("no route to host")))  # as in libraries
    tracker = BackgroundTracker("wandb", lambda: failing, {})
    tracker.begin(0)
    for step in range(100):
        tracker.scalars(step, {"train/loss": 1.0})
    assert list_messages_of_end(tracker) == []
    assert list(tracker.take_failures()) == [
        "log.to=wandb stopped (SystemExit: no route to host); training continues"
    ]


@pytest.fixture
def unresponsive_tracker() -> Iterator[BackgroundTracker]:
    """A tracker whose server does not respond before the end of the test."""
    response = threading.Event()
    tracker = BackgroundTracker("mlflow", lambda: Mock(begin=lambda *_: response.wait()), {})
    tracker.begin(0)
    yield tracker
    response.set()


def test_unresponsive_tracker_drops_points_and_is_abandoned(unresponsive_tracker, monkeypatch):
    monkeypatch.setattr(trackers, "MAX_WAITING_EVENTS", 5)
    monkeypatch.setattr(trackers, "CLOSING_SECONDS", (0.05, 0.4))
    for step in range(100):
        unresponsive_tracker.scalars(step, {"train/loss": 1.0})
    messages = list_messages_of_end(unresponsive_tracker)
    (warning,) = unresponsive_tracker.take_failures()
    assert warning.startswith("log.to=mlflow is too slow")
    assert messages == [
        "waiting up to 0 s for log.to=mlflow",
        "log.to=mlflow did not respond in time; metrics.jsonl has everything",
    ]


def test_tracker_without_closing_seconds_left_is_abandoned(unresponsive_tracker):
    assert list_messages_of_end(unresponsive_tracker, sum(trackers.CLOSING_SECONDS)) == [
        "log.to=mlflow did not respond in time; metrics.jsonl has everything"
    ]


def test_unknown_or_missing_tracker_is_a_problem(monkeypatch):
    monkeypatch.setattr("resnet_recipes.base.extras.find_spec", lambda name: None)
    (unknown,) = LogConfig(to=["tensorbord", "wandb"]).problems()
    (missing,) = find_tracker_problems(["wandb"])
    assert "mlflow" in unknown.valid
    assert missing.fix == suggest_install("wandb")
