"""The loop on small runs: resuming is bit-identical, and steps never wait for the device."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image
from torch.profiler import ProfilerActivity, profile

from resnet_recipes.network import about
from resnet_recipes.network.load import Network
from resnet_recipes.training import loop
from resnet_recipes.training.evaluate import evaluate
from resnet_recipes.training.loop import train
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import restore
from tests.shared.checks import is_identical
from tests.training.recording import HOT, RecordingReporter, find_differing_tensors, record


def test_loop_logs_evaluates_and_saves_as_planned(make_run):
    run = make_run(
        "max_duration=5ba log.interval=2ba evaluation.interval=3ba checkpoint.interval=4ba"
    )
    recording = record(run)
    assert (recording.logged, recording.evaluated, recording.saved) == (
        [2, 3, 4, 5],
        [3, 5],
        [4, 5],
    )


def test_stop_request_logs_and_saves(make_run):
    run = make_run("max_duration=8ba checkpoint.interval=1dur evaluation.interval=1dur")
    recording = record(run, stop_at=3)
    assert len(recording.losses) == 3
    assert (recording.logged, recording.evaluated, recording.saved) == ([2, 3], [], [3])


@pytest.mark.parametrize(("is_on", "steps"), [(True, [8]), (False, [])])
def test_bn_average_averages_after_every_epoch(is_on, steps, make_run, monkeypatch):
    run = make_run(f"max_duration=9ba batch.bn_average={is_on}")
    recording = RecordingReporter(run)
    averaged = []
    monkeypatch.setattr(
        loop, "average_statistics", lambda _: averaged.append(len(recording.losses) + 1)
    )
    train(run, recording)
    assert averaged == steps


def test_reached_target_saves_and_ends_run(make_run):
    run = make_run(
        "max_duration=8ba checkpoint.interval=1dur evaluation.interval=2ba "
        "evaluation.offset=1ba evaluation.stop_at_top1=50.0"
    )
    recording = RecordingReporter(run)
    recording.evaluate = lambda done: setattr(run, "top1", 20.0 * done)
    assert train(run, recording) == 3
    assert recording.saved == [3]


def test_pending_evaluation_precedes_first_step(make_run):
    run = make_run("max_duration=4ba evaluation.interval=1dur")
    recording = RecordingReporter(run)
    evaluated = []

    def evaluate(done: int) -> None:
        evaluated.append((done, len(recording.losses)))
        run.has_pending_evaluation = False

    run.has_pending_evaluation, recording.evaluate = True, evaluate
    train(run, recording, first=2)
    assert evaluated == [(2, 0), (4, 2)]


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_resumed_hot_run_is_bit_identical(make_run, micro_batches):
    arguments = f"max_duration=7ba batch.bn_size={16 // micro_batches} {HOT}"
    whole = make_run(arguments)
    recording = record(whole, keep=(2, 3, 5))  # before, at and after a SAM step
    for done, state in recording.states.items():
        resumed = make_run(arguments)
        assert restore(resumed, state) == done
        assert is_identical(record(resumed, done).losses, recording.losses[done:])
        assert find_differing_tensors(resumed, whole) == []


def test_steps_never_wait_for_device(make_run):
    run = make_run(f"max_duration=4ba log.interval=1dur {HOT}")
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        record(run)
    waits = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero"}
    assert waits & {event.key for event in trace.key_averages()} == set()


def train_and_record(run: Run) -> tuple[list[float], list[float]]:
    """Train a run; return a sample of its methods' generator and the learning rate, by step."""
    rows = []
    run.methods.after_step = lambda model, now: rows.append(
        (now.rng.random(), run.optimizer.param_groups[0]["lr"])
    )
    record(run)
    return tuple(map(list, zip(*rows, strict=True)))


def test_random_numbers_depend_on_seed_rank_and_step(make_run):
    run = make_run("max_duration=2ba schedule.warmup=1ba seed=3")
    for rank in (0, 1):
        run.rank = replace(run.rank, rank=rank)
        draws, rates = train_and_record(run)
        generators = [np.random.default_rng((3, rank, step)) for step in range(2)]
        seeds = [int(rng.integers(2**63)) for rng in generators]  # seeds of the forward pass
        assert len({*seeds}) == 2
        assert draws == [rng.random() for rng in generators]
        assert rates == [0.0, 0.05]


def test_backbone_rate_scales_lr_of_backbone(make_run):
    run = make_run(
        "max_duration=2ba schedule.warmup=1ba model.weights=unread optimizer.backbone_rate=0.1"
    )
    record(run)
    rates = {id(p): group["lr"] for group in run.optimizer.param_groups for p in group["params"]}
    actual = [rates[id(layer.weight)] for layer in (run.model.conv1, run.model.fc)]
    assert actual == pytest.approx([0.005, 0.05])


def test_images_are_normalized_as_in_recipe(make_run):
    """In training, in evaluation and with a weights file, compared with the loader's pixels."""
    half = "data.mean=[127.5,127.5,127.5] data.std=[51,51,51] max_duration=1ba schedule.warmup=0ba"
    run = make_run(half)
    seen = []
    (raw,) = islice(run.train_data.batches(0), 1)
    expected = (raw.pixels.double() - 127.5) / 51  # a copy, since the loader reuses its memory
    run.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    record(run)
    torch.testing.assert_close(torch.cat(seen).double(), expected, rtol=0, atol=1e-5)
    raw = next(run.eval_data.batches()).pixels.clone()
    seen[:] = []
    evaluate(run.model, run.eval_data, run.precision, run.plan.num_classes)
    torch.testing.assert_close(seen[0].double(), (raw.double() - 127.5) / 51, rtol=0, atol=1e-5)
    described = about.describe(run.plan.recipe, (), 10)
    picture = Image.fromarray(np.full((40, 50, 3), 255, np.uint8))
    assert Network(run.model, described).transform(picture).unique().tolist() == pytest.approx(
        [2.5]
    )
