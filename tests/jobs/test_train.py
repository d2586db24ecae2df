"""What the first rank reports about its run."""

from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import pytest

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.jobs import train
from resnet_recipes.jobs.rank import RankProcess
from resnet_recipes.network.load import load
from tests.run_folders import begun


@pytest.mark.parametrize(
    ("compiles", "said"),
    [
        (True, "compiling the network before the first step, which can take minutes\n"),
        (False, ""),
    ],
)
def test_a_run_that_compiles_says_so_before_it_does(compiles, said, recipe, tmp_path, monkeypatch):
    begun(tmp_path, recipe(precision={"compile": compiles}))
    monkeypatch.setattr(train, "build", Mock(side_effect=RuntimeError("compiling")))
    console = StringIO()
    with pytest.raises(RuntimeError, match="compiling"):
        train.work(RankProcess(tmp_path, 0, console, 0.0, Mock(), Mock()))
    assert console.getvalue() == said


@pytest.mark.parametrize("is_sample", [False, True])
def test_a_run_that_was_stopped_can_be_resumed_unless_it_was_a_measurement(
    is_sample, monkeypatch, tmp_path
):
    if is_sample:
        (tmp_path / "job.json").write_text('{"job": "train", "spans": [[5, 7]]}')
    monkeypatch.setattr(train, "train", lambda *_: 3)
    monkeypatch.setattr(train, "RunReporter", Mock())
    settings = {
        "plan.total_steps": 7,
        "train_data.source.notes": (),
        "train_data.source.skipped": (),
    }
    run, recorder = Mock(notes=(), graphs=None, **settings), Mock()
    run.has_reached_target = False
    process = Mock(folder=tmp_path)
    assert (
        train.lead(run, process, Mock(notes=()), recorder, [(0, 7)])
        == process.interruption.exit_code
    )
    recorder.begin.assert_called_once_with(0, run.clock.seconds(), run.owes_evaluation)
    fix = "" if is_sample else f"resnet-train --resume {tmp_path}"
    assert recorder.stopped.call_args.args[2] == fix


def test_training_time_ends_before_the_last_checkpoint_and_the_weights_are_written(
    monkeypatch, tmp_path
):
    times = [10.0]
    monkeypatch.setattr(train, "train", lambda *_: 7)
    monkeypatch.setattr(train, "RunReporter", Mock())
    monkeypatch.setattr(
        train,
        "write_results",
        Mock(side_effect=lambda *_: times.append(30.0) or (Path("w.pt"), None)),
    )
    settings = {
        "plan.total_steps": 7,
        "plan.recipe.log.mlperf": False,
        "train_data.source.notes": (),
        "train_data.source.skipped": (),
        "clock.seconds": lambda: times[-1],
        "best.metrics": None,
        "owes_evaluation": False,
    }
    run, checkpoints, recorder = Mock(notes=(), graphs=None, **settings), Mock(notes=()), Mock()
    checkpoints.wait.side_effect = lambda is_last: times.append(20.0)
    train.lead(run, Mock(folder=tmp_path), checkpoints, recorder, [(0, 7)])
    assert times == [10.0, 20.0, 30.0]
    assert recorder.finish.call_args.kwargs["seconds"] == 10.0


def test_the_error_that_ends_a_run_stays_the_one_that_is_shown(monkeypatch, tmp_path):
    monkeypatch.setattr(train, "RunReporter", Mock())
    monkeypatch.setattr(train, "train", Mock(side_effect=OSError("No space left on device")))
    checkpoints = Mock(notes=())
    checkpoints.wait.side_effect = TrainingError("the last checkpoint could not be written")
    run = Mock(notes=(), graphs=None, **{"train_data.source.notes": ()})
    with pytest.raises(OSError, match="No space left") as failure:
        train.lead(run, Mock(folder=tmp_path), checkpoints, Mock(), [(0, 7)])
    checkpoints.wait.assert_called_once()
    assert failure.value.__notes__ == ["the last checkpoint could not be written"]


def test_weights_say_how_long_they_were_trained_not_how_long_was_planned(make_run, tmp_path):
    run = make_run("max_duration=8ba batch.global_size=32 batch.bn_size=32")
    train.write_results(run, tmp_path, Mock(measured=(None, None)), 6)
    assert run.plan.steps_per_epoch == 4
    assert load(tmp_path).about.epochs == 1.5
