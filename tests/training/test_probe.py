"""Speeds are measured by really training."""

import itertools
from collections.abc import Callable
from dataclasses import asdict
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torchvision

from resnet_recipes import data
from resnet_recipes.base.duration import Horizon
from resnet_recipes.jobs.rank import RankProcess
from resnet_recipes.methods.base import Now
from resnet_recipes.methods.sam import SAM
from resnet_recipes.planning.make import make_plan
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.frozen import freeze, read
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.training import distributed, probe
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.graphs import WAITS_BEFORE_REPLAY
from tests.jobs.nursery import shallow_resnet18

ALONE = Rank(0, 1, torch.device("cpu"))


@pytest.fixture
def made(recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan with growing images and every kind of method."""
    monkeypatch.setattr(torchvision.models, "resnet18", shallow_resnet18)
    methods = {
        "progressive_resizing": {"initial_scale": 0.5},
        "colout": {},
        "label_smoothing": {},
        "ema": {},
        "sam": {"interval": 2},
    }
    small = recipe("max_duration=4ep", methods=methods)
    return make_plan(small, data.measure(small.data), 1)


def test_the_ends_and_the_middle_of_the_sizes_are_measured(made, monkeypatch):
    monkeypatch.setattr(probe, "STEPS", 3)
    found = probe.speeds(made, ALONE, seconds=5.0)
    assert {min(made.sizes), max(made.sizes)} <= set(found.step) <= set(made.sizes)
    assert all(len(laps) >= 1 and min(laps) > 0 for laps in found.step.values())
    assert found.evaluation > 0
    assert found.save > 0
    assert (found.loader, found.end_to_end, found.exchange, found.devices) == ({}, None, 0.0, 1)


def test_training_on_the_real_images_is_timed(made, monkeypatch):
    monkeypatch.setattr(probe, "STEPS", 2)
    assert probe.end_to_end_rate(made, ALONE, 16, seconds=1.0) > 0


def test_a_run_that_ends_within_the_warm_up_is_timed_by_what_it_has(made, monkeypatch):
    monkeypatch.setattr(
        probe, "train", lambda run, reporter, first: reporter.laps.extend([2.0, 2.0])
    )
    assert probe.end_to_end_rate(made, ALONE, 16, seconds=1.0) == pytest.approx(8.0)


def test_what_the_first_steps_take_longer_is_known(made, monkeypatch):
    """By hand: the first two steps of each size take 7 seconds, later ones 1."""
    made.recipe.methods.sam = None
    laps = [5.0, 2.0, 1.0, 1.0, 1.0]
    monkeypatch.setattr(probe, "train", lambda run, reporter, *_: reporter.laps.extend(laps))
    assert probe.speeds(made, ALONE).warm_up_seconds == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("laps", "size"), [([0.0, 0.0, 4.0], 8), ([90.0, 40.0, 0.01], 32), ([0.0, 0.8], 16)]
)
def test_the_batch_is_chosen_by_a_step_that_is_warm_and_takes_no_longer_than_may_be(
    laps, size, made, monkeypatch
):
    """By hand: 8 images in 0.8 seconds are 20 in two."""
    monkeypatch.setattr(Plan, "bn_size", 32)
    monkeypatch.setattr(probe, "measured_laps", lambda *_: laps)
    assert probe.probe_size(made, ALONE, 16) == size


def speeds_of_two(process: RankProcess) -> dict[str, object]:
    """Measure on every rank at once."""
    probe.STEPS = 3
    torchvision.models.resnet18 = shallow_resnet18
    recipe = read(process.folder / "config.yaml")
    made = make_plan(recipe, data.measure(recipe.data), 2)
    found = probe.speeds(made, distributed.this_rank("cpu"), seconds=2.0)
    distributed.leave()
    return asdict(found)


@pytest.mark.slow
def test_ranks_measure_together(nursery, made, tmp_path):
    (tmp_path / "config.yaml").write_text(freeze(made.recipe))
    first, second = nursery.call(tmp_path, 2, speeds_of_two)
    assert first["devices"] == 2
    assert first["exchange"] > 0
    assert first["step"].keys() == second["step"].keys()
    assert first["batch"] == second["batch"]
    assert first["evaluation"] > 0


class Ticking:
    """A loader on a clock of its own: batches of the first pass take longer."""

    def __init__(self):
        self.now, self._passes = 0.0, 0

    def batches(self):
        self._passes += 1
        for number in itertools.count():
            self.now += 100.0 if number == 0 else 2.0 if self._passes == 1 else 0.5
            yield number


def test_loader_is_timed_on_new_images_and_then_on_the_same(monkeypatch):
    """By hand: five batches of 8 images in 2 s each, then the same five in 0.5 s each."""
    loader = Ticking()
    monkeypatch.setattr(probe.time, "perf_counter", lambda: loader.now)
    assert probe.loader_rates(loader, 8, ALONE, seconds=20.0) == (4.0, 16.0)
    assert loader.now == 100 + 5 * 2.0 + 100 + 5 * 0.5


def test_epochs_have_the_runs_own_sizes_and_steps_enough_to_be_timed(made):
    synthetic = probe.synthetic(made, ALONE, 16)
    assert synthetic.sizes == made.sizes
    assert synthetic.steps_per_epoch > probe.WARM_UP + probe.STEPS + 2
    assert synthetic.steps_per_epoch % made.steps_per_epoch == 0


def test_a_step_of_sam_counts_with_its_share():
    """One in five steps takes two gradients: by hand, (2 + 4 x 1) / 5."""
    laps = [2.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0]
    assert probe.mixed(laps, 5) == pytest.approx([1.2] * 5)
    assert probe.mixed([3.0, 4.0], 1) == [3.0, 4.0]
    assert probe.mixed([2.0], 5) == [2.0]


@pytest.mark.parametrize(("device", "steps"), [("cpu", 2 + 1), ("cuda", 8 + 1)])
def test_a_step_is_timed_once_the_warm_up_is_over_and_gradients_are_replayed(device, steps):
    stopwatch = probe.Stopwatch(torch.device(device), seconds=0.0)
    while not stopwatch.wants_to_stop():
        stopwatch.laps.append(1.0)
    assert len(stopwatch.laps) == steps
    # the graph is made in one more
    assert device == "cpu" or probe.warm_up(torch.device(device)) > WAITS_BEFORE_REPLAY + 1


def gradients_at(step: int, sam: SAM, horizon: Horizon) -> int:
    """Count the gradients that SAM takes in a step."""
    weight = torch.ones(1, requires_grad=True)
    compute = Mock(side_effect=lambda sync=True: weight.sum().backward())
    sam.gradient(compute, [weight], Now(step, horizon, np.random.default_rng(0)))
    return compute.call_count


def test_the_first_step_that_is_timed_is_one_of_sams_at_the_size_that_was_asked_for(
    made, monkeypatch
):
    begun = []
    monkeypatch.setattr(
        probe,
        "train",
        lambda run, reporter, first: (begun.append((run.plan, first)), reporter.laps.append(1.0)),
    )
    made.recipe.methods.sam.interval = 5
    for side in set(made.sizes):
        probe.measured_laps(made, ALONE, side, 16, 1.0, ())
        plan, step = begun[-1][0], begun[-1][1] + probe.WARM_UP
        assert plan.pixels_at(step) == plan.pixels_at(begun[-1][1]) == side
        assert gradients_at(step, made.recipe.methods.sam, plan.horizon) == 2
