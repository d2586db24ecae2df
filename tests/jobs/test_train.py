"""The task of a rank that trains: its messages, its training time and the facts for reports."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.jobs import train
from resnet_recipes.jobs.machine.run_time import make_speed_key
from resnet_recipes.jobs.ranks.rank import LaunchFacts, RankProcess
from resnet_recipes.network.load import load
from resnet_recipes.planning.estimate import Speeds
from resnet_recipes.planning.measurement_cache import write_measurement
from resnet_recipes.report.recorder import Evaluation
from resnet_recipes.training.checkpoint import SavedState
from resnet_recipes.training.clock import Clock
from resnet_recipes.training.run import Run
from tests.shared.plans import make_recipe
from tests.shared.run_folders import create_unstarted_run


@pytest.mark.parametrize(
    ("compiles", "message"),
    [
        (True, "compiling the network before the first step, which can take minutes\n"),
        (False, ""),
    ],
)
def test_compile_is_announced_before_it_starts(compiles, message, tmp_path, monkeypatch):
    create_unstarted_run(tmp_path, make_recipe(precision={"compile": compiles}))
    monkeypatch.setattr(train, "build", Mock(side_effect=RuntimeError("compiling")))
    console = StringIO()
    with pytest.raises(RuntimeError, match="compiling"):
        train.run_task(RankProcess(tmp_path, 0, console, LaunchFacts(0.0), Mock(), Mock()))
    assert console.getvalue() == message


@pytest.fixture
def run_rank_0(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable:
    monkeypatch.setattr(train, "RunReporter", Mock())

    def lead(trains: object, checkpoints: Mock, recorder: Mock, **more: object) -> tuple:
        settings = {
            "plan.total_steps": 7,
            "train_data.source.notes": (),
            "train_data.source.skipped": (),
        }
        run = Mock(**settings | more)
        process = Mock(folder=tmp_path)
        run.get_status = partial(Run.get_status, run)
        monkeypatch.setattr(train, "train", trains)
        return run, process, train.train_first_rank(run, process, checkpoints, recorder, [(0, 7)])

    return lead


@pytest.mark.parametrize("is_sample", [False, True])
def test_stopped_run_prints_resume_unless_a_measurement(is_sample, run_rank_0, tmp_path):
    if is_sample:
        (tmp_path / "task.json").write_text('{"task": "train", "spans": [[5, 7]]}')
    recorder = Mock()
    run, process, code = run_rank_0(
        lambda *_: 3, Mock(), recorder, has_reached_target=False, has_pending_evaluation=False
    )
    assert code == process.interruption.exit_code
    recorder.begin.assert_called_once_with(0, run.clock.seconds(), run.has_pending_evaluation)
    fix = "" if is_sample else f"resnet-train --resume {tmp_path}"
    assert recorder.log_stop.call_args.args[2] == fix


def test_training_time_excludes_last_checkpoint_and_weights(run_rank_0, monkeypatch):
    times = [10.0]
    checkpoints = Mock()
    recorder = Mock()

    monkeypatch.setattr(train, "write_weight_files", lambda *_: times.append(30.0))
    monkeypatch.setattr(train, "store_speeds", Mock())
    checkpoints.wait.side_effect = lambda is_last: times.append(20.0)
    more = {"clock.seconds": lambda: times[-1], "best.metrics": None}
    more["has_pending_evaluation"] = False
    run_rank_0(lambda *_: 7, checkpoints, recorder, **more)
    assert times == [10.0, 20.0, 30.0]
    assert recorder.finish.call_args.args[1] == 10.0


@pytest.mark.parametrize(
    ("saved", "seconds"), [(None, 0.0), (SavedState(0, {"seconds": 60.0}), 60.0)]
)
def test_training_time_excludes_loading_weights_or_checkpoint(saved, seconds, monkeypatch):
    now = [0.0]

    def wait(*_: object) -> int:
        now[0] += 5.0
        return 7

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(train.pretrained, "find_weights", wait)
    for module, name in (
        (train.pretrained, "load"),
        (train, "restore"),
        (train, "compute_parameter_sum"),
        (train.distributed, "is_same_on_all_ranks"),
    ):
        monkeypatch.setattr(module, name, wait)
    monkeypatch.setattr(train, "list_resume_warnings", lambda *_: [])
    device = torch.device("cpu")
    run = Mock(clock=Clock(device), rank=Mock(device=device))
    train.resume(run, Mock(load_newest=lambda: saved if wait() else None))
    assert now[0] >= 15.0
    assert run.clock.seconds() == seconds


def test_run_notes_one_replaced_image_in_singular(run_rank_0):
    recorder = Mock()
    skipped = {"train_data.source.skipped": ("a.jpg",)}
    run_rank_0(lambda *_: 7, Mock(), recorder, **skipped)
    note = "replaced 1 unreadable training image on rank 0: a.jpg"
    recorder.log_note.assert_called_once_with(7, note)


def test_error_in_training_outlives_error_of_last_checkpoint(run_rank_0):
    full = OSError("No space left on device")
    checkpoints = Mock()
    checkpoints.wait.side_effect = TrainingError("the last checkpoint could not be written")
    with pytest.raises(OSError, match="No space left") as failure:
        run_rank_0(Mock(side_effect=full), checkpoints, Mock())
    checkpoints.wait.assert_called_once()
    assert failure.value.__notes__ == ["the last checkpoint could not be written"]


def test_weights_record_trained_not_planned_epochs(make_run, tmp_path):
    run = make_run("max_duration=8ba batch.global_size=32 batch.bn_size=32")
    train.write_weight_files(run, tmp_path, Evaluation(None, None), 6)
    assert run.plan.steps_per_epoch == 4
    assert load(tmp_path).about.epochs == 1.5


def test_run_facts_show_times_for_target_or_verbose(make_run, tmp_path):
    run = make_run()
    quiet, verbose = (Mock(folder=tmp_path, launch=LaunchFacts(0.0, all_)) for all_ in (0, 1))
    assert not train.make_run_facts(run, quiet).shows_all_times
    assert train.make_run_facts(run, verbose).shows_all_times
    run.plan.recipe.evaluation.stop_at_top1 = 75.9
    assert train.make_run_facts(run, quiet).shows_all_times


@pytest.mark.parametrize(("classes", "has_top5"), [(5, False), (6, True)])
def test_run_facts_have_top5_only_above_five_classes(classes, has_top5, make_run, tmp_path):
    run = make_run()
    process = Mock(folder=tmp_path, launch=LaunchFacts(0.0))
    run.plan = replace(run.plan, num_classes=classes)
    assert train.make_run_facts(run, process).has_top5 == has_top5


def test_run_facts_estimate_seconds_from_earlier_measurement(make_run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = make_run()
    process = Mock(folder=tmp_path, launch=LaunchFacts(0.0))
    assert train.make_run_facts(run, process).estimated_seconds is None
    write_measurement(make_speed_key(run.plan), Speeds({run.plan.image_sizes[0]: (0.25,)}))
    images = run.plan.total_steps * run.plan.recipe.batch.global_size
    assert train.make_run_facts(run, process).estimated_seconds == pytest.approx(0.25 * images)
