"""Measure how fast this machine runs a recipe.

On synthetic images it times steps at some image sizes, evaluation, the all-reduce and a checkpoint.
On the images of the run it times the loader alone, and training.
"""

import time
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import median

import torch
from torch import Tensor

from resnet_recipes.base import atomic
from resnet_recipes.base.text import Progress, do_nothing
from resnet_recipes.data.loading import TrainLoader
from resnet_recipes.planning.estimate import Speeds
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.training.build import build, choose_searched_sizes, open_rank_images
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.distributed import (
    Rank,
    average_over_ranks,
    join_group,
    sum_over_ranks,
    wait_for_ranks,
)
from resnet_recipes.training.evaluate import evaluate
from resnet_recipes.training.graphs import WAITS_BEFORE_REPLAY
from resnet_recipes.training.loop import train
from resnet_recipes.training.run import Run
from resnet_recipes.training.state import collect_state

#: Untimed steps before the timed ones: they select algorithms, compile and fill caches.
WARM_UP_STEPS = 2

#: Timed steps at each image size, if there is enough time.
TIMED_STEPS = 12

#: Seconds that one step of the measurement should not exceed: see `choose_batch_size`.
MAX_STEP_SECONDS = 2.0


class TimingReporter:
    """A reporter that only times steps, and stops training after enough of them."""

    def __init__(self, device: torch.device, seconds: float):
        self.laps: list[float] = []
        self._device = device
        self._warm_up = count_warm_up_steps(device)
        self._last = time.perf_counter()
        self._end = self._last + seconds

    def is_stop_requested(self) -> bool:
        """Return whether enough steps are timed, or one step is timed and the time is over."""
        timed = len(self.laps) - self._warm_up
        return timed >= TIMED_STEPS or (timed > 0 and time.perf_counter() > self._end)

    def step(self, done: int, losses: Tensor) -> None:
        """Record the seconds of a step, after waiting for the device to finish it."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.laps.append(now - self._last)
        self._last = now

    log = evaluate = save = do_nothing


def count_warm_up_steps(device: torch.device) -> int:
    """Return the number of steps that are not timed.

    On a GPU this includes the steps before gradients are replayed if the host is the bottleneck.
    """
    return WARM_UP_STEPS + WAITS_BEFORE_REPLAY + 1 if device.type == "cuda" else WARM_UP_STEPS


def measure_speeds(
    plan: Plan,
    rank: Rank,
    seconds: float = 45.0,
    elapsed_seconds: float = 0.0,
    progress: Progress = do_nothing,
) -> Speeds:
    """Measure for about `seconds` and return the combined speeds of all ranks.

    Every rank calls this, and the result of rank 0 is used. The machine should be otherwise idle.
    `elapsed_seconds` is the number of seconds since the command started. `progress` is
    called with the number of finished parts and the number of all parts.
    """
    join_group(rank)
    image_sizes = _choose_image_sizes(plan)
    seconds_per_part = seconds / 6
    batch_size = choose_batch_size(plan, rank, min(image_sizes))
    sizes = choose_searched_sizes(plan)
    laps = {}
    parts = len(image_sizes) + (1 if plan.facts.backend == "synthetic" else 3)
    progress(0, parts)
    for image_size in image_sizes:
        laps[image_size] = time_steps(plan, rank, image_size, batch_size, seconds_per_part, sizes)
        progress(len(laps), parts)
    steps, warm_up_seconds = _split_warm_up(
        laps, count_warm_up_steps(rank.device), _get_gradient_interval(plan)
    )
    images = batch_size * rank.world_size
    with closing(build(make_synthetic_plan(plan, rank, 8), rank, ())) as run:
        speeds = Speeds(
            {size: tuple(lap / images for lap in times) for size, times in steps.items()},
            _measure_evaluation_rate(run),
            images_per_device=batch_size,
            devices=rank.world_size,
            warm_up_seconds=max(0.0, warm_up_seconds),
            all_reduce_seconds=_measure_all_reduce_seconds(run) if rank.world_size > 1 else 0.0,
            start_seconds=elapsed_seconds,
            save_seconds=_measure_save_seconds(run),
        )
    progress(len(image_sizes) + 1, parts)
    if plan.facts.backend == "synthetic":
        return speeds
    with closing(open_rank_images(plan, rank, plan.new_stack())) as loader:
        first_epoch_rate, later_rate = measure_loader_rates(
            loader, plan.rank_size, rank, seconds_per_part
        )
        progress(len(image_sizes) + 2, parts)
        # this comes before the loader closes, since it keeps its images in memory
        total_rate = measure_end_to_end_rate(plan, rank, batch_size, seconds_per_part)
    crop = (plan.loader_sizes or (plan.recipe.data.train_size,))[0]
    return replace(
        speeds,
        loader_images_per_second={crop: later_rate},
        first_epoch_images_per_second=first_epoch_rate,
        total_images_per_second=total_rate,
    )


def _split_warm_up(
    laps: dict[int, list[float]], warm_up_steps: int, period: int
) -> tuple[dict[int, list[float]], float]:
    """Return the seconds of steps after the warm-up, by image size, and what the warm-up adds."""
    steps = {
        size: spread_extra_gradients(times[warm_up_steps:], period) for size, times in laps.items()
    }
    added_seconds = median(
        sum(times[:warm_up_steps]) - warm_up_steps * median(steps[image_size])
        for image_size, times in laps.items()
    )
    return steps, added_seconds


def measure_end_to_end_rate(plan: Plan, rank: Rank, batch_size: int, seconds: float) -> float:
    """Return training images per second on real images, at the first image size of the run.

    `batch_size` is per device.
    """
    images = batch_size * rank.world_size
    recipe = replace(
        plan.recipe, batch=replace(plan.recipe.batch, global_size=images, bn_size=batch_size)
    )
    timed_plan = make_plan(recipe, plan.facts, rank.world_size, reads_teachers=False)
    laps = _time_run(timed_plan, rank, seconds, choose_searched_sizes(plan))
    # a run on few images may end within the warm-up
    return images / median(laps[count_warm_up_steps(rank.device) :] or laps)


def _time_run(
    plan: Plan, rank: Rank, seconds: float, searched_sizes: Collection[int], first_step: int = 0
) -> list[float]:
    """Return the seconds of each step of a run from step `first_step`, including warm-up."""
    with closing(build(plan, rank, searched_sizes)) as run:
        reporter = TimingReporter(rank.device, seconds)
        train(run, reporter, first_step)
    return reporter.laps


def _choose_image_sizes(plan: Plan) -> Sequence[int]:
    """Return the image sizes to measure: the smallest, the largest, and the middle one by area."""
    complete_epochs = plan.image_sizes[: plan.total_steps // plan.steps_per_epoch]
    image_sizes = sorted(set(complete_epochs or plan.image_sizes))
    middle_area = (image_sizes[0] ** 2 + image_sizes[-1] ** 2) / 2
    middle = min(image_sizes, key=lambda image_size: abs(image_size**2 - middle_area))
    return sorted({image_sizes[0], middle, image_sizes[-1]})


def choose_batch_size(plan: Plan, rank: Rank, image_size: int) -> int:
    """Return a batch size whose step should take at most MAX_STEP_SECONDS at `image_size`.

    It is the micro-batch size, or the largest power of two within this time. It is at least 8,
    even if that takes longer, unless the micro-batch is smaller.
    """
    batch_size = plan.micro_batch_size
    if batch_size <= 8:
        return batch_size
    # one step is enough: building the network and the warm-up take many times as long
    last = time_steps(plan, rank, image_size, 8, 0.0, ())[-1]
    # ranks use their mean, so that all choose the same size
    mean = average_over_ranks(torch.tensor(last, device=rank.device))
    images_per_second = 8 / mean.item()
    # the largest power of two up to this number; 0 for 0
    fitting = (1 << int(MAX_STEP_SECONDS * images_per_second).bit_length()) >> 1
    return max(8, min(batch_size, fitting))


def time_steps(
    plan: Plan,
    rank: Rank,
    image_size: int,
    batch_size: int,
    seconds: float,
    searched_sizes: Collection[int],
) -> list[float]:
    """Return the seconds of each step at an image size, including warm-up.

    The first step after the warm-up computes two gradients, if any step does.
    """
    probe = make_synthetic_plan(plan, rank, batch_size)
    first_step = plan.image_sizes.index(image_size) * probe.steps_per_epoch
    done = first_step + count_warm_up_steps(rank.device) + 1  # steps done after the first timed one
    return _time_run(
        probe, rank, seconds, searched_sizes, first_step + -done % _get_gradient_interval(plan)
    )


def _get_gradient_interval(plan: Plan) -> int:
    """Return how often a step takes two gradients, in steps; 1 if no step does."""
    return plan.extra_gradient_every or 1


def spread_extra_gradients(laps: Sequence[float], interval: int) -> list[float]:
    """Return the mean seconds per step of an interval, for each timed step with one gradient.

    The first step of each interval takes two gradients; its median counts for every interval. With
    an interval of 1, returns `laps`.
    """
    first_laps = laps[::interval]
    other_laps = [lap for i, lap in enumerate(laps) if i % interval]
    spread_laps = [(median(first_laps) + (interval - 1) * lap) / interval for lap in other_laps]
    return spread_laps or list(first_laps)


def make_synthetic_plan(plan: Plan, rank: Rank, batch_size: int) -> Plan:
    """Return the plan with synthetic images, `batch_size` per device and step.

    All epochs are longer by the same factor, so that each has enough steps to time.
    """
    needed = count_warm_up_steps(rank.device) + TIMED_STEPS + _get_gradient_interval(plan)
    times = 1 + needed // min(plan.steps_per_epoch, plan.total_steps)
    recipe = plan.recipe
    global_size = batch_size * rank.world_size
    probe = replace(
        recipe,
        max_duration=f"{plan.total_steps * times}ba",
        scale_schedule_ratio=1.0,
        data=replace(recipe.data, backend="synthetic"),
        batch=replace(recipe.batch, global_size=global_size, bn_size=batch_size),
        schedule=replace(recipe.schedule, name="constant", warmup="0ba", milestones=[]),
    )
    facts = replace(
        plan.facts,
        backend="synthetic",
        train_examples=plan.steps_per_epoch * times * global_size,
        eval_examples=2 * recipe.batch.eval_size * rank.world_size,
    )
    return make_plan(probe, facts, rank.world_size, reads_teachers=False)


def _measure_evaluation_rate(run: Run) -> float:
    inputs = run.model, run.eval_data, run.precision, run.plan.num_classes
    evaluate(*inputs)
    start = time.perf_counter()
    evaluate(*inputs)
    return run.eval_data.examples / (time.perf_counter() - start)


def _measure_all_reduce_seconds(run: Run) -> float:
    """Return the seconds of the all-reduce of one step's gradients, without overlap."""
    laps, device = [], run.rank.device
    for param in run.model.parameters():
        param.grad = torch.zeros_like(param)
    for _ in range(WARM_UP_STEPS + 5):
        wait_for_ranks()
        start = time.perf_counter()
        with run.all_reduce.average(True):
            pass
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        laps.append(time.perf_counter() - start)
    return median(laps[WARM_UP_STEPS:])


def _measure_save_seconds(run: Run) -> float:
    """Return the seconds of writing a checkpoint to disk, after one step."""
    # the optimizer has no state before the first step
    train(run, TimingReporter(run.rank.device, 0.0), 0, 1)
    with atomic.make_temporary_folder() as folder:
        start = time.perf_counter()
        Checkpoints(folder).save(1, collect_state(run, 1), wait=True)
        return time.perf_counter() - start


def measure_loader_rates(
    loader: TrainLoader, batch_size: int, rank: Rank, seconds: float
) -> tuple[float, float]:
    """Return images per second of all ranks' loaders alone: new images, then repeated images.

    `batch_size` is per rank.
    """
    new_laps = _time_batches(loader, seconds / 2)
    repeated_laps = _time_batches(loader, seconds / 2, len(new_laps))
    rates = [
        batch_size * len(laps) / sum(laps) if len(laps) < 4 else batch_size / median(laps)
        for laps in (new_laps, repeated_laps)
    ]
    new, repeated = sum_over_ranks(torch.tensor(rates, device=rank.device)).tolist()
    return new, repeated


def _time_batches(
    loader: TrainLoader, seconds: float, max_batches: int | None = None
) -> list[float]:
    """Return the seconds of each batch from the second on: at least two, at most `max_batches`."""
    batches = loader.batches()
    laps = list[float]()
    next(batches)
    start = last = time.perf_counter()
    while len(laps) < 2 or (last - start < seconds and len(laps) != max_batches):
        next(batches)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
    return laps
