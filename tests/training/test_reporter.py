"""The records of the reporter, and the weights that it rejects."""

from copy import deepcopy
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.methods.base import Now
from resnet_recipes.training import reporter
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.reporter import RunReporter
from resnet_recipes.training.run import Run
from tests.shared.checks import is_identical

NEVER = Mock(return_value=False)  # answers whether a stop is requested


def make_reporter(run: Run, recorder: Mock) -> RunReporter:
    return RunReporter(run, recorder, Mock(), NEVER, Mock())


@pytest.mark.parametrize("name", ["layer1.0.conv1.weight", "layer1.0.bn1.running_var"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_save_rejects_non_finite_model(name, value, make_run, tmp_path):
    run = make_run()
    checkpoints = Checkpoints(tmp_path / "checkpoints", 2)
    reporter = RunReporter(run, Mock(), checkpoints, NEVER, Mock())
    reporter.save(1)
    tensor = run.model.state_dict()[name]
    tensor[(0,) * tensor.dim()] = value
    message = (
        r"not finite numbers at step 2, which was not saved\n    hint:  usual causes.*optimizer\.lr"
    )
    with pytest.raises(TrainingError, match=message):
        reporter.save(2)
    checkpoints.wait()
    assert checkpoints.load_newest().step == 1


def test_saved_statistics_come_from_rank_0(make_run, tmp_path, monkeypatch):
    run = make_run()
    checkpoints = Checkpoints(tmp_path)
    monkeypatch.setattr(
        reporter, "broadcast_statistics", lambda model: model.bn1.running_mean.fill_(7)
    )
    RunReporter(run, Mock(), checkpoints, NEVER, Mock()).save(1)
    checkpoints.wait()
    assert set(checkpoints.load_newest().state["model"]["bn1.running_mean"].tolist()) == {7}


def test_interval_without_finite_loss_logs_nan(make_run):
    run = make_run("precision.dtype=fp16")
    run.precision.check = lambda *_: None
    recorder = Mock()
    reporter = make_reporter(run, recorder)
    for losses, logged in (([float("inf"), 2.0], 2.0), ([float("inf")] * 2, float("nan"))):
        for done, loss in enumerate(losses, 1):
            reporter.step(done, torch.tensor([loss]))
        reporter.log(2, Mock(waited=0.0))
        assert recorder.log_step.call_args[0][0].loss == pytest.approx(logged, nan_ok=True)


def test_record_has_lr_and_size_of_last_step(make_run):
    run = make_run("schedule.warmup=4ba methods.progressive_resizing.delay=0.2dur")
    recorder = Mock()
    end = run.plan.steps_per_epoch
    reporter = make_reporter(run, recorder)
    reporter.step(end, torch.tensor([1.0]))
    for done in (2, end):  # within the warm-up, and at the end of the first size
        reporter.log(done, Mock(waited=0.0))
        metrics = recorder.log_step.call_args[0][0]
        assert (metrics.lr, metrics.pixels) == (run.plan.lr_at(done - 1), 16)
    assert run.plan.image_size_at(end) > 16


def test_speed_counts_images_of_every_step(make_run):
    """Manually, three steps in six seconds are half a batch per second."""
    recorder = Mock()
    run = make_run("log.interval=3ba")
    run.clock = Mock(**{"seconds.side_effect": [10.0, 16.0]})
    reporter = make_reporter(run, recorder)
    for done in (1, 2, 3):
        reporter.step(done, torch.tensor([1.0]))
    reporter.log(3, Mock(waited=0.0))
    speed = recorder.log_step.call_args[0][0].images_per_second
    assert speed == run.plan.recipe.batch.global_size / 2


def test_compilation_is_recorded_from_a_tenth_second(make_run):
    recorder = Mock()
    run = make_run()
    run.compilation = Mock(**{"seconds.side_effect": [0.0625, 0.125, 0.1875, 0.25]})
    reporter = make_reporter(run, recorder)
    for done in (1, 2, 3, 4):
        reporter.step(done, torch.tensor([1.0]))
        reporter.log(done, Mock(waited=0.0))
    assert [call.args for call in recorder.log_compilation.call_args_list] == [
        (2, 0.125),
        (4, 0.125),
    ]


def test_data_wait_share_covers_only_its_interval(make_run):
    recorder = Mock()
    run = make_run()
    reporter = make_reporter(run, recorder)
    for done, waited in ((1, 1000.0), (2, 1000.0)):
        reporter.step(done, torch.tensor([1.0]))
        reporter.log(done, Mock(waited=waited))
    assert [call[0][0].data_wait_share for call in recorder.log_step.call_args_list] == [1.0, 0.0]


def test_best_weights_with_ema_are_its_average(make_run):
    run = make_run("methods.ema={} checkpoint.best=top1 max_duration=2ba schedule.warmup=0ba")
    average = deepcopy(run.model.state_dict())
    run.methods.after_step(run.model, Now(0, run.plan.horizon, np.random.default_rng()))
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.add_(1.0)
    RunReporter(run, None, None, NEVER, Mock()).evaluate(1)
    assert run.best.step == 1
    assert is_identical(run.best.weights, average)


def test_only_the_best_evaluation_is_marked(make_run):
    recorder = Mock()
    reporter = make_reporter(make_run("checkpoint.best=loss"), recorder)
    for done in (1, 2):  # with equal results
        reporter.evaluate(done)
    marks = [call.kwargs["is_best"] for call in recorder.log_evaluation.call_args_list]
    assert marks == [True, False]


def test_evaluation_beats_after_every_batch(make_run):
    run, heartbeat = make_run(), Mock()
    batches = len(list(run.eval_data.batches()))
    RunReporter(run, None, None, NEVER, heartbeat).evaluate(1)
    assert heartbeat.beat.call_count == batches > 1


def test_only_the_save_after_training_is_last(make_run):
    run = make_run()
    checkpoints = Mock()
    reporter = RunReporter(run, Mock(), checkpoints, NEVER, Mock())
    for done in (1, run.plan.total_steps):
        reporter.save(done)
    assert [call.kwargs["is_last"] for call in checkpoints.save.call_args_list] == [False, True]


def test_stop_request_discards_evaluation_until_repeated(make_run):
    run = make_run("max_duration=1ba schedule.warmup=0ba checkpoint.best=top1 methods.ema={}")
    recorder = Mock()
    batches = len(list(run.eval_data.batches()))
    assert batches > 1
    for reads in range(1, 2 * batches + 1):  # batches with EMA weights, then with raw weights
        answers = Mock(side_effect=[False] * (reads - 1) + [True] * 2 * batches)
        RunReporter(run, recorder, Mock(), answers, Mock()).evaluate(1)
        assert (run.has_pending_evaluation, run.best.evaluations) == (True, 0)
        assert run.model.training
    assert not recorder.log_evaluation.called
    assert not recorder.write_correct_images.called
    make_reporter(run, recorder).evaluate(1)
    assert (run.has_pending_evaluation, run.best.evaluations) == (False, 1)
    recorder.log_evaluation.assert_called_once()
    (images,) = recorder.write_correct_images.call_args[0]
    assert len(images.flags) == run.eval_data.examples


def test_evaluation_shows_images_of_every_rank(make_run):
    """Rank 0 of 2 reads 3 of 5 images; the 6 of both ranks are limited to 5."""
    run = make_run()
    recorder = Mock()
    run.rank = replace(run.rank, world_size=2)
    run.eval_data = Mock(examples=5)
    for images in (0, 2, 3):
        make_reporter(run, recorder)._show_evaluating(7, images)
    calls = [call.args for call in recorder.console.show_evaluating.call_args_list]
    assert calls == [(7, 0, 5), (7, 4, 5), (7, 5, 5)]


def test_correct_images_cover_images_of_every_rank(make_run, monkeypatch):
    """Rank 1 of 2 has images 1 and 3 of 5; rank 0 adds its images."""
    run = make_run()
    recorder = Mock()
    run.rank = replace(run.rank, rank=1, world_size=2)
    run.eval_data = Mock(examples=5)
    others = torch.tensor([1, 0, 0, 0, 1], dtype=torch.int32)
    monkeypatch.setattr(reporter, "sum_over_ranks", lambda flags: flags + others)
    batches = [torch.tensor([False]), torch.tensor([True])]
    make_reporter(run, recorder)._write_correct_images(batches)
    (hits,) = recorder.write_correct_images.call_args[0]
    assert hits == (run.plan.facts.eval_digest, "10011")
