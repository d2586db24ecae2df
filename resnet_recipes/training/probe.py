"""Measure how fast this machine runs a recipe.

A few real steps at some image sizes, the loader alone, evaluation.
"""

import time
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from resnet_recipes.base.text import Progress, silent
from resnet_recipes.data.loading import TrainLoader
from resnet_recipes.estimating.estimate import Speeds
from resnet_recipes.planning.make import make_plan
from resnet_recipes.planning.plan import Plan
from resnet_recipes.training.build import build, open_train, searched
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.distributed import Rank, join, mean_over_ranks, meet, total_over_ranks
from resnet_recipes.training.evaluate import evaluate
from resnet_recipes.training.graphs import WAITS_BEFORE_REPLAY
from resnet_recipes.training.loop import train
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import capture

#: First steps that are not timed: they choose algorithms, compile and fill caches.
WARM_UP = 2

#: Steps that are timed at each image size, if the time allows.
STEPS = 12

#: Seconds that one step of the probe may take; its batch is the largest power of two that keeps to
#: them, or 8 images.
LONGEST_STEP = 2.0


class Stopwatch:
    """A reporter that only times steps, and stops training when it has timed enough."""

    def __init__(self, device: torch.device, seconds: float):
        self.laps: list[float] = []
        self._device, self._warm_up, self._last = device, warm_up(device), time.perf_counter()
        self._end = self._last + seconds

    def wants_to_stop(self) -> bool:
        """Return whether enough steps are timed, or at least one and the time is up."""
        timed = len(self.laps) - self._warm_up
        return timed >= STEPS or (timed > 0 and time.perf_counter() > self._end)

    def step(self, done: int, losses: Tensor) -> None:
        """Time a step, to its end on the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.laps.append(now - self._last)
        self._last = now

    def nothing(self, *_: object) -> None:
        """Record, evaluate and save nothing."""

    log = evaluate = save = nothing


def warm_up(device: torch.device) -> int:
    """Return how many steps are not timed.

    On a GPU gradients are then replayed, where the host is the bottleneck.
    """
    return WARM_UP + WAITS_BEFORE_REPLAY + 1 if device.type == "cuda" else WARM_UP


def speeds(
    plan: Plan,
    rank: Rank,
    seconds: float = 45.0,
    started: float = 0.0,
    progress: Progress = silent,
) -> Speeds:
    """Measure for about `seconds` on all ranks at once; the machine should be otherwise idle.

    Every rank calls this.

    Steps are real ones, taken by the training loop, exchange included, on a micro-batch of
    synthetic images. `started` is how many seconds it took until here. `progress` is called with
    how many parts are done, and of how many. Return the speeds of all ranks together; keep those
    that rank 0 returns.
    """
    join(rank)
    sides, share = _sides(plan), seconds / 6
    size = probe_size(plan, rank, min(sides))
    laps, parts = {}, len(sides) + (1 if plan.facts.backend == "synthetic" else 3)
    progress(0, parts)
    for side in sides:
        laps[side] = measured_laps(plan, rank, side, size, share, searched(plan))
        progress(len(laps), parts)
    first = warm_up(rank.device)
    steps = {side: mixed(found[first:], _interval(plan)) for side, found in laps.items()}
    warm_up_seconds = median(
        sum(found[:first]) - first * median(steps[side]) for side, found in laps.items()
    )
    images = size * rank.world_size
    with closing(build(synthetic(plan, rank, 8), rank, ())) as run:
        speeds = Speeds(
            {side: tuple(lap / images for lap in found) for side, found in steps.items()},
            _evaluation_rate(run),
            batch=size,
            devices=rank.world_size,
            warm_up_seconds=max(0.0, warm_up_seconds),
            exchange=_exchange_seconds(run) if rank.world_size > 1 else 0.0,
            start=started,
            save=_save_seconds(run),
        )
    progress(len(sides) + 1, parts)
    if plan.facts.backend == "synthetic":
        return speeds
    with closing(open_train(plan, rank, plan.new_stack())) as loader:
        first, later = loader_rates(loader, plan.rank_size, rank, share)
        progress(len(sides) + 2, parts)
        # while the loader keeps its images in memory
        both = end_to_end_rate(plan, rank, size, share)
    crop = (plan.loader_pixels or (plan.recipe.data.train_size,))[0]
    return replace(speeds, loader={crop: later}, first_epoch=first, end_to_end=both)


def end_to_end_rate(plan: Plan, rank: Rank, size: int, seconds: float) -> float:
    """Return images per second of training on real images, at the first image size of the run.

    `size` is the batch of each device.
    """
    images = size * rank.world_size
    recipe = replace(
        plan.recipe, batch=replace(plan.recipe.batch, global_size=images, bn_size=size)
    )
    timed = make_plan(recipe, plan.facts, rank.world_size, reads_teachers=False)
    laps = _timed(timed, rank, seconds, searched(plan))
    # a run on few images may end within the warm-up
    return images / median(laps[warm_up(rank.device) :] or laps)


def _timed(
    plan: Plan, rank: Rank, seconds: float, searches: Collection[int], first: int = 0
) -> list[float]:
    """Return the seconds of steps of a run from step `first` on, warm-up included."""
    with closing(build(plan, rank, searches)) as run:
        stopwatch = Stopwatch(rank.device, seconds)
        train(run, stopwatch, first)
    return stopwatch.laps


def _sides(plan: Plan) -> Sequence[int]:
    """Return the image sizes to measure.

    The smallest, the largest, and the one nearest the middle by area.
    """
    whole_epochs = plan.sizes[: plan.total_steps // plan.steps_per_epoch]
    sides = sorted(set(whole_epochs or plan.sizes))
    middle = min(sides, key=lambda side: abs(side**2 - (sides[0] ** 2 + sides[-1] ** 2) / 2))
    return sorted({sides[0], middle, sides[-1]})


def probe_size(plan: Plan, rank: Rank, side: int) -> int:
    """Return a batch whose step fits into LONGEST_STEP at the smallest size.

    A micro-batch, or a part of one.
    """
    size = plan.bn_size
    if size <= 8:
        return size
    # without building the network and the warm-up, which take many times as long as a step
    last = measured_laps(plan, rank, side, 8, 0.0, ())[-1]
    mean = mean_over_ranks(torch.tensor(last, device=rank.device))  # all take the same size
    images_per_second = 8 / mean.item()
    # the largest power of two that is not more; 0 for 0
    fitting = (1 << int(LONGEST_STEP * images_per_second).bit_length()) >> 1
    return max(8, min(size, fitting))


def measured_laps(
    plan: Plan, rank: Rank, side: int, size: int, seconds: float, searches: Collection[int]
) -> list[float]:
    """Return the seconds of steps at an image size, warm-up included.

    The first one after the warm-up takes two gradients, if any does.
    """
    probe = synthetic(plan, rank, size)
    begin = plan.sizes.index(side) * probe.steps_per_epoch
    timed = begin + warm_up(rank.device) + 1  # steps done after the first that is timed
    return _timed(probe, rank, seconds, searches, begin + -timed % _interval(plan))


def _interval(plan: Plan) -> int:
    """Return the steps from one that takes two gradients to the next; 1 if none does."""
    return plan.extra_gradient_every or 1


def mixed(laps: Sequence[float], interval: int) -> list[float]:
    """Return the seconds of plain steps.

    Each has its share of the first step of every `interval`.
    """
    first, plain = laps[::interval], [lap for i, lap in enumerate(laps) if i % interval]
    return [(median(first) + (interval - 1) * lap) / interval for lap in plain] or list(first)


def synthetic(plan: Plan, rank: Rank, size: int) -> Plan:
    """Return the plan of the same run on synthetic images, `size` of them per device and step.

    Epochs that are too short to time steps in are longer, each as many times.
    """
    needed = warm_up(rank.device) + STEPS + _interval(plan)
    times = 1 + needed // min(plan.steps_per_epoch, plan.total_steps)
    recipe, batch = plan.recipe, size * rank.world_size
    probe = replace(
        recipe,
        max_duration=f"{plan.total_steps * times}ba",
        scale_schedule_ratio=1.0,
        data=replace(recipe.data, backend="synthetic"),
        batch=replace(recipe.batch, global_size=batch, bn_size=size),
        schedule=replace(recipe.schedule, name="constant", warmup="0ba", milestones=[], values=[]),
    )
    facts = replace(
        plan.facts,
        backend="synthetic",
        train_examples=plan.steps_per_epoch * times * batch,
        eval_examples=2 * recipe.batch.eval_size * rank.world_size,
    )
    return make_plan(probe, facts, rank.world_size, reads_teachers=False)


def _evaluation_rate(run: Run) -> float:
    """Return images per second of evaluation, on synthetic images."""
    evaluated = run.model, run.eval_data, run.precision, run.plan.num_classes
    evaluate(*evaluated)
    began = time.perf_counter()
    evaluate(*evaluated)
    return run.eval_data.examples / (time.perf_counter() - began)


def _exchange_seconds(run: Run) -> float:
    """Return the seconds that exchanging one step's gradients takes with nothing else running."""
    laps, device = [], run.rank.device
    for param in run.model.parameters():
        param.grad = torch.zeros_like(param)
    for _ in range(WARM_UP + 5):
        meet()
        began = time.perf_counter()
        with run.exchange.averaging(True):
            pass
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        laps.append(time.perf_counter() - began)
    return median(laps[WARM_UP:])


def _save_seconds(run: Run) -> float:
    """Return the seconds until a checkpoint is on disk."""
    # the optimizer has no state before the first step
    train(run, Stopwatch(run.rank.device, 0.0), 0, 1)
    with TemporaryDirectory(prefix="resnet-recipes-") as folder:
        began = time.perf_counter()
        Checkpoints(Path(folder)).save(1, capture(run, 1), wait=True)
        return time.perf_counter() - began


def loader_rates(
    loader: TrainLoader, images: int, rank: Rank, seconds: float
) -> tuple[float, float]:
    """Return images per second of all ranks' loaders alone: of new images, then of the same.

    A rank's batch has `images`.
    """
    first = _laps(loader, seconds / 2)
    again = _laps(loader, seconds / 2, len(first))
    rates = [
        images * len(laps) / sum(laps) if len(laps) < 4 else images / median(laps)
        for laps in (first, again)
    ]
    new, known = total_over_ranks(torch.tensor(rates, device=rank.device)).tolist()
    return new, known


def _laps(loader: TrainLoader, seconds: float, most: int | None = None) -> list[float]:
    """Return the seconds of at least two batches, and of more for some time, from the second on."""
    batches, laps = loader.batches(), list[float]()
    next(batches)
    began = last = time.perf_counter()
    while len(laps) < 2 or (last - began < seconds and len(laps) != most):
        next(batches)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
    return laps
