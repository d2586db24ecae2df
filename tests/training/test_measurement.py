"""Speeds are measured by training."""

import itertools
from dataclasses import asdict
from statistics import median

import pytest
import torch
import torchvision

from resnet_recipes import data
from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.frozen_recipe import freeze, read
from resnet_recipes.training import distributed, loop, measurement
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.graphs import WAITS_BEFORE_REPLAY
from tests.shared.plans import plan_recipe
from tests.shared.tables import parse_values
from tests.shared.tiny_networks import build_shallow_resnet18

ALONE = Rank(0, 1, torch.device("cpu"))


@pytest.fixture
def growing_plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan with growing images and all kinds of methods."""
    monkeypatch.setattr(torchvision.models, "resnet18", build_shallow_resnet18)
    methods = {
        "progressive_resizing": {"initial_scale": 0.5},
        "colout": {},
        "label_smoothing": {},
        "ema": {},
        "sam": {"interval": 2},
    }
    return plan_recipe("max_duration=4ep", methods=methods)


def test_measure_speeds_covers_smallest_and_largest_size(growing_plan, monkeypatch):
    monkeypatch.setattr(measurement, "TIMED_STEPS", 3)
    speeds = measurement.measure_speeds(growing_plan, ALONE, seconds=5.0)
    assert (
        {min(growing_plan.image_sizes), max(growing_plan.image_sizes)}
        <= set(speeds.seconds_per_image)
        <= set(growing_plan.image_sizes)
    )
    assert all(len(laps) >= 1 and min(laps) > 0 for laps in speeds.seconds_per_image.values())
    assert speeds.evaluation_images_per_second > 0
    assert speeds.save_seconds > 0
    assert (
        speeds.loader_images_per_second,
        speeds.total_images_per_second,
        speeds.all_reduce_seconds,
        speeds.devices,
    ) == ({}, None, 0, 1)


def test_end_to_end_rate_uses_the_median_step(growing_plan, monkeypatch):
    timed = []

    def train(run, reporter, first):
        loop.train(run, reporter, first)
        timed.append((run, reporter.laps))

    monkeypatch.setattr(measurement, "TIMED_STEPS", 3)
    monkeypatch.setattr(measurement, "train", train)
    rate = measurement.measure_end_to_end_rate(growing_plan, ALONE, 16, seconds=60.0)
    ((run, laps),) = timed
    assert run.plan.recipe.batch.global_size == 16
    assert run.plan.recipe.data == growing_plan.recipe.data
    assert len(laps) > measurement.WARM_UP_STEPS
    assert rate == pytest.approx(16 / median(laps[measurement.WARM_UP_STEPS :]))


def test_end_to_end_rate_uses_laps_within_warmup(growing_plan, monkeypatch):
    monkeypatch.setattr(
        measurement, "train", lambda run, reporter, first: reporter.laps.extend([2.0, 2.0])
    )
    assert measurement.measure_end_to_end_rate(
        growing_plan, ALONE, 16, seconds=1.0
    ) == pytest.approx(8.0)


def test_warm_up_seconds_are_excess_of_first_steps(growing_plan, monkeypatch):
    """Expected: the first two steps of each size take 7 s, later ones 1 s."""
    growing_plan.recipe.methods.sam = None
    laps = [5.0, 2.0, 1.0, 1.0, 1.0]
    monkeypatch.setattr(measurement, "train", lambda run, reporter, *_: reporter.laps.extend(laps))
    assert measurement.measure_speeds(growing_plan, ALONE).warm_up_seconds == pytest.approx(5.0)


def test_image_size_takes_a_sixth_of_the_seconds(growing_plan, monkeypatch):
    spans = []
    monkeypatch.setattr(measurement, "time_steps", lambda *args: spans.append(args[4]) or [1.0] * 5)
    measurement.measure_speeds(growing_plan, ALONE, seconds=60.0)
    assert max(spans) == 10.0


@pytest.mark.parametrize(
    ("laps", "size"),
    parse_values("""
[0.0, 0.0, 4.0] | 8
[90.0, 40.0, 0.01] | 32
[0.0, 0.8] | 16
"""),
)
def test_batch_size_is_chosen_by_warm_step(laps, size, growing_plan, monkeypatch):
    """Expected: 8 images in 0.8 s are 20 images in 2 s."""
    monkeypatch.setattr(Plan, "micro_batch_size", 32)
    monkeypatch.setattr(measurement, "time_steps", lambda *_: laps)
    assert measurement.choose_batch_size(growing_plan, ALONE, 16) == size


def measure_two_ranks(process: RankProcess) -> dict[str, object]:
    measurement.TIMED_STEPS = 3
    torchvision.models.resnet18 = build_shallow_resnet18
    recipe = read(process.folder / "config.yaml")
    growing = make_plan(recipe, data.survey_images(recipe.data), 2)
    rank = distributed.read_rank("cpu", process.launch.store_path)
    speeds = measurement.measure_speeds(growing, rank, seconds=2.0)
    distributed.leave_group()
    return asdict(speeds)


@pytest.mark.slow
def test_two_ranks_measure_equal_sizes_together(launcher, growing_plan, tmp_path):
    (tmp_path / "config.yaml").write_text(freeze(growing_plan.recipe))
    first, second = launcher.call(tmp_path, 2, measure_two_ranks)
    assert first["devices"] == 2
    assert first["all_reduce_seconds"] > 0
    assert first["seconds_per_image"].keys() == second["seconds_per_image"].keys()
    assert first["images_per_device"] == second["images_per_device"]
    assert first["evaluation_images_per_second"] > 0


class TickingLoader:
    """A loader with a simulated clock; batches of the first pass take longer."""

    def __init__(self):
        self.now, self._passes = 0.0, 0

    def batches(self):
        self._passes += 1
        for number in itertools.count():
            self.now += 100.0 if number == 0 else 2.0 if self._passes == 1 else 0.5
            yield number


def test_loader_rates_cover_new_and_repeated_images(monkeypatch):
    """Expected: five batches of 8 images in 2 s each, then the same five in 0.5 s each."""
    loader = TickingLoader()
    monkeypatch.setattr(measurement.time, "perf_counter", lambda: loader.now)
    assert measurement.measure_loader_rates(loader, 8, ALONE, seconds=20.0) == (4.0, 16.0)
    assert loader.now == 100 + 5 * 2.0 + 100 + 5 * 0.5


def test_synthetic_plan_keeps_sizes_and_lengthens_epochs(growing_plan):
    synthetic = measurement.make_synthetic_plan(growing_plan, ALONE, 16)
    assert synthetic.image_sizes == growing_plan.image_sizes
    assert synthetic.steps_per_epoch > measurement.WARM_UP_STEPS + measurement.TIMED_STEPS + 2
    assert synthetic.steps_per_epoch % growing_plan.steps_per_epoch == 0


def test_extra_gradients_are_spread_over_interval():
    """One in five steps takes two gradients; manually, (2 + 4 x 1) / 5."""
    laps = [2.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0]
    assert measurement.spread_extra_gradients(laps, 5) == pytest.approx([1.2] * 5)
    assert measurement.spread_extra_gradients([3.0, 4.0], 1) == [3.0, 4.0]
    assert measurement.spread_extra_gradients([2.0], 5) == [2.0]


@pytest.mark.parametrize(("device", "steps"), [("cpu", 2 + 1), ("cuda", 8 + 1)])
def test_timing_reporter_stops_after_enough_steps(device, steps):
    stopwatch = measurement.TimingReporter(torch.device(device), seconds=0.0)
    while not stopwatch.is_stop_requested():
        stopwatch.laps.append(1.0)
    assert len(stopwatch.laps) == steps
    # the graph is captured in one more step
    assert (
        device == "cpu"
        or measurement.count_warm_up_steps(torch.device(device)) > WAITS_BEFORE_REPLAY + 1
    )


def test_first_timed_step_is_sam_step_of_size(growing_plan, monkeypatch):
    begun = []
    monkeypatch.setattr(
        measurement,
        "train",
        lambda run, reporter, first: (begun.append((run.plan, first)), reporter.laps.append(1.0)),
    )
    growing_plan.recipe.methods.sam.interval = 5
    for side in set(growing_plan.image_sizes):
        measurement.time_steps(growing_plan, ALONE, side, 16, 1.0, ())
        plan = begun[-1][0]
        step = begun[-1][1] + measurement.WARM_UP_STEPS
        assert plan.image_size_at(step) == plan.image_size_at(begun[-1][1]) == side
        assert (step + 1) % 5 == 0
