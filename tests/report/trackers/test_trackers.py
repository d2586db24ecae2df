"""What trackers were sent, read back by each tracker's own reader."""

import csv
import importlib.util
import io
import json
import threading
import time
from pathlib import Path

import pytest

from resnet_recipes.report.console import PlainConsole
from resnet_recipes.report.facts import Metrics, RunFacts
from resnet_recipes.report.recorder import Recorder
from resnet_recipes.report.trackers import TRACKERS, background, opened, problems
from resnet_recipes.report.trackers.background import Background

SETTINGS = {"optimizer.lr": 2.0, "methods.ema.half_life": "100ba", "data.root": "/data"}


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test where a tracker's package is missing."""
    package = TRACKERS[name][0]
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")


def session(folder: Path, names: list[str], steps: range, first: int = 0) -> list[str]:
    """Record a few steps and an evaluation; return what was complained about."""
    facts = RunFacts("small", folder, 20, 10, 16, (32,), 10, "CPU")
    trackers = opened(names, folder, SETTINGS)
    said = io.StringIO()
    console = PlainConsole(said, said)
    with Recorder(folder, facts, console, trackers=trackers) as recorder:
        recorder.begin(first)
        for step in steps:
            recorder.step(step, loss=1 / step, lr=0.1, pixels=32, seconds=1.0 * step, images_per_second=16.0,
                          data_wait=0.0)
        recorder.evaluation(steps[-1], ema=Metrics(70.0, 90.0, 1.5, 100), raw=None, seconds=1.0)
    return [line for line in said.getvalue().splitlines() if "log.to" in line]


@needs("tensorboard")
def test_tensorboard_reads_the_curves_and_a_resumed_run_continues_them(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert session(tmp_path, ["tensorboard"], range(1, 9)) == []
    time.sleep(1.1)  # event files are ordered by the second of their creation
    assert session(tmp_path, ["tensorboard"], range(6, 11), first=5) == []
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 11))
    assert events.Scalars("train/loss")[3].value == pytest.approx(0.25)
    assert events.Scalars("val/ema_top1")[-1].value == 70.0
    assert "settings/text_summary" in events.Tags()["tensors"]


@needs("mlflow")
def test_mlflow_reads_the_curves_and_a_resumed_run_is_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    assert session(folder, ["mlflow"], range(1, 6)) == []
    assert session(folder, ["mlflow"], range(6, 11), first=5) == []
    client = MlflowClient((tmp_path / "runs" / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("resnet-recipes").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["optimizer.lr"] == "2.0"
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "train/loss")] == list(range(1, 11))
    assert run.data.metrics["val/ema_top1"] == 70.0


@needs("wandb")
@pytest.mark.exhaustive      # W&B writes from a process of its own, now and then too late on a busy machine
def test_wandb_keeps_the_curves_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(background, "PATIENCE", 100)            # its own process takes long to start on a busy machine
    assert session(tmp_path, ["wandb"], range(1, 6)) == []
    (written,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    found = records_of(written)
    assert [row["train/loss"] for row in found if "train/loss" in row] == [
        pytest.approx(1 / step) for step in range(1, 6)
    ]
    assert [row["val/ema_top1"] for row in found if "val/ema_top1" in row] == [70.0]


def records_of(path: Path) -> list[dict[str, float]]:
    """Return the history rows of a W&B file: protocol buffers in LevelDB's log format, in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    data, at, record, rows = path.read_bytes(), 7, b"", []          # 7 bytes of W&B's own header
    while at + 7 < len(data):
        if 32768 - at % 32768 < 7:                                  # the rest of a block is padding
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):                                          # a whole record, or the last part of one
            parsed = wandb_internal_pb2.Record.FromString(record)
            if parsed.HasField("history"):
                rows.append({"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in parsed.history.item})
            record = b""
    return rows


def test_the_csv_file_has_a_row_per_point_and_a_resumed_run_drops_what_it_repeats(tmp_path: Path) -> None:
    session(tmp_path, ["csv"], range(1, 9))
    session(tmp_path, ["csv"], range(6, 11), first=5)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows if row["train/loss"]] == list(range(1, 11))
    assert rows[-1]["val/ema_top1"] == "70.0"


class Broken:
    """A tracker whose server is gone."""

    def begin(self, settings: object, step: int) -> None:
        """Fail as such libraries do."""
        raise SystemExit("no route to host")


def test_a_tracker_that_fails_is_reported_once_and_stops_nothing() -> None:
    tracker = Background("wandb", Broken, {})
    tracker.begin(0)
    for step in range(100):
        tracker.scalars(step, {"train/loss": 1.0})
    tracker.close()
    assert list(tracker.complaints()) == ["log.to=wandb stopped (SystemExit: no route to host); training continues"]


class Stuck:
    """A tracker whose server never answers."""

    def __init__(self, answers: threading.Event):
        self.begin = lambda settings, step: answers.wait()
        self.scalars = lambda step, values: None
        self.close = lambda: None


def test_a_tracker_that_never_responds_drops_points_and_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "CAPACITY", 5)
    monkeypatch.setattr(background, "PATIENCE", 0.05)
    answers = threading.Event()
    tracker = Background("mlflow", lambda: Stuck(answers), {})
    tracker.begin(0)
    for step in range(100):
        tracker.scalars(step, {"train/loss": 1.0})
    tracker.close()
    warnings = list(tracker.complaints())
    assert warnings[0].startswith("log.to=mlflow is too slow")
    assert len([text for text in warnings if "too slow" in text]) == 1
    answers.set()


def test_unknown_and_missing_trackers_are_problems_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resnet_recipes.report.trackers.find_spec", lambda name: None)
    unknown, missing = problems(["tensorbord", "wandb"])
    assert "must be one of" in unknown.rule
    assert missing.fix == "pip install 'resnet-recipes[wandb]'"
