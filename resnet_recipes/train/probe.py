"""How fast this machine runs a recipe: a few real steps at some image sizes, the loader alone, an evaluation."""

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import torch
from torch import Tensor

from resnet_recipes import plan
from resnet_recipes.config import Recipe, enabled
from resnet_recipes.data.base import DataFacts
from resnet_recipes.measure.estimate import Speeds
from resnet_recipes.plan import Plan
from resnet_recipes.train.build import build, close, open_data
from resnet_recipes.train.distributed import Rank
from resnet_recipes.train.evaluate import evaluate
from resnet_recipes.train.loop import train

#: Steps that are left out: the first ones choose algorithms, compile and fill caches.
WARM_UP = 2

#: Steps that a size is timed with, if the time allows.
STEPS = 12

#: Seconds that one step of the probe may take; the batch is halved until it does.
LONGEST_STEP = 2.0


class Stopwatch:
    """A keeper that keeps nothing: it times steps, and stops training when it has enough."""

    has_reached_target = False

    def __init__(self, device: torch.device, seconds: float):
        self.laps: list[float] = []
        self._device, self._last = device, time.perf_counter()
        self._end = self._last + seconds

    def wants_to_stop(self) -> bool:
        """Stop when enough steps are timed, or the time is over and some are."""
        return len(self.laps) >= WARM_UP + STEPS or (len(self.laps) > WARM_UP and time.perf_counter() > self._end)

    def step(self, done: int, loss: Tensor) -> None:
        """Take the time of a step, to its end on the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.laps.append(now - self._last)
        self._last = now

    def log(self, done: int, stream: object) -> None:
        """Nothing is recorded."""

    def evaluate(self, done: int) -> None:
        """Nothing is evaluated."""

    def save(self, done: int) -> None:
        """Nothing is saved."""


def speeds(made: Plan, device: torch.device, seconds: float = 45.0) -> Speeds:
    """Measure for about `seconds` on one device, in this process; the whole machine should be free.

    A step costs what it costs in training: it is `train` that makes it, on drawn images of a micro-batch.
    """
    rank = Rank(0, 0, 1, device)
    sides, share = _sides(made), seconds / 5
    size = _probe_size(made, rank, min(sides))
    steps = {side: _step_seconds(made, rank, side, size, share) for side in sides}
    evaluation = _evaluation_rate(made, rank)
    is_drawn = made.facts.backend == "synthetic"
    loader = None if is_drawn else _loader_rate(made, rank, share)
    per_image = {side: tuple(lap / size for lap in laps) for side, laps in steps.items()}
    return Speeds(per_image, loader, evaluation, size)


def together(made: Plan, device: torch.device, size: int, seconds: float = 10.0) -> float:
    """Return images per second of training on the real images, `size` a step, at the first image size of the run."""
    recipe = replace(made.recipe, batch=replace(made.recipe.batch, global_size=size, bn_size=size))
    run = build(plan.of(recipe, made.facts, 1), Rank(0, 0, 1, device))
    stopwatch = Stopwatch(device, seconds)
    try:
        train(run, stopwatch)
    finally:
        close(run)
    return size / median(stopwatch.laps[WARM_UP:])


def _sides(made: Plan) -> Sequence[int]:
    """Return the image sizes to measure: the ends, and what is nearest to the middle by area."""
    sides = sorted(set(made.sizes))
    middle = min(sides, key=lambda side: abs(side**2 - (sides[0] ** 2 + sides[-1] ** 2) / 2))
    return sorted({sides[0], middle, sides[-1]})


def _probe_size(made: Plan, rank: Rank, side: int) -> int:
    """Return a batch whose step fits into LONGEST_STEP at the smallest size: a micro-batch, or a part of one."""
    size = made.bn_size
    while size > 8:
        began = time.perf_counter()
        _step_seconds(made, rank, side, min(size, 8), 0.0)
        images_per_second = 8 * (WARM_UP + 1) / (time.perf_counter() - began)
        return max(8, min(size, 1 << int(LONGEST_STEP * images_per_second).bit_length()))
    return size


def _step_seconds(made: Plan, rank: Rank, side: int, size: int, seconds: float) -> list[float]:
    """Return seconds of steps; one of SAM's every `interval` steps is in each of them with its share."""
    run = build(_drawn(made, side, size), rank)
    sam, stopwatch = enabled(made.recipe.methods).get("sam"), Stopwatch(rank.device, seconds)
    interval = sam.interval if sam else 1
    try:
        train(run, stopwatch, first=-WARM_UP % interval)        # the first lap that counts is one of SAM's
    finally:
        close(run)
    return _mixed(stopwatch.laps[WARM_UP:], interval)


def _mixed(laps: Sequence[float], interval: int) -> list[float]:
    """Return the seconds of plain steps, each with its share of the first step of every `interval`."""
    first, plain = laps[::interval], [lap for i, lap in enumerate(laps) if i % interval]
    return [(median(first) + (interval - 1) * lap) / interval for lap in plain] or list(first)


def _drawn(made: Plan, side: int, size: int, eval_examples: int = 1) -> Plan:
    """Return the plan of the same step on drawn images of one size."""
    recipe = made.recipe
    methods = replace(recipe.methods, progressive_resizing=None) if enabled(recipe.methods) else recipe.methods
    full = _crop_for(recipe, side)
    probe = replace(
        recipe,
        max_duration="10000ba",
        scale_schedule_ratio=1.0,
        methods=methods,
        data=replace(recipe.data, backend="synthetic", train_size=full),
        batch=replace(recipe.batch, global_size=size, bn_size=size),
        schedule=replace(recipe.schedule, name="constant", warmup="0ba", milestones=[], values=[]),
        log=replace(recipe.log, interval="10000ba"),
        evaluation=replace(recipe.evaluation, interval="10000ba"),
        checkpoint=replace(recipe.checkpoint, interval="10000ba"),
    )
    facts = DataFacts("synthetic", made.facts.root, 10_000 * size, eval_examples, made.facts.classes)
    return plan.of(probe, facts, 1)


def _crop_for(recipe: Recipe, side: int) -> int:
    """Return the crop that enters the model at `side`: ColOut makes images smaller."""
    colout = enabled(recipe.methods).get("colout")
    return next((full for full in range(side, 2 * side) if colout.size_after(full) == side), side) if colout else side


def _evaluation_rate(made: Plan, rank: Rank) -> float:
    """Return images per second of evaluation on drawn images."""
    size = made.recipe.batch.eval_size
    run = build(_drawn(made, max(made.sizes), 8, 2 * size), rank)
    try:
        evaluate(run.model, run.eval_data, run.precision)
        began = time.perf_counter()
        evaluate(run.model, run.eval_data, run.precision)
        return 2 * size / (time.perf_counter() - began)
    finally:
        close(run)


def _loader_rate(made: Plan, rank: Rank, seconds: float) -> float:
    """Return images per second of the loader alone, at the size of its first crops."""
    train_data, eval_data = open_data(made, rank, made.methods())
    eval_data.close()
    images, laps = 0, []
    try:
        batches = iter(train_data.batches())
        next(batches)
        began = last = time.perf_counter()
        while last - began < seconds or len(laps) < 2:
            images = len(next(batches).labels)
            now = time.perf_counter()
            laps.append(now - last)
            last = now
        return images * len(laps) / (last - began) if len(laps) < 4 else images / median(laps)
    finally:
        train_data.close()
