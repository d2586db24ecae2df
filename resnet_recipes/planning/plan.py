"""Everything a run will do, derived once from the recipe, the data and the number of ranks."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from resnet_recipes.base import schedule
from resnet_recipes.base.duration import Duration, Horizon
from resnet_recipes.data.base import DataFacts, Share
from resnet_recipes.data.imagenet import wordnet_ids
from resnet_recipes.data.loading.slots import Capacity
from resnet_recipes.estimating.network import NetworkFacts, Teacher, teaching
from resnet_recipes.estimating.published import IMAGENET_IMAGES
from resnet_recipes.methods.stack import Stack
from resnet_recipes.planning.advice import notes_on
from resnet_recipes.planning.disk import Disk, disk_of
from resnet_recipes.recipe.library import PROGRAM, Origin
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder.facts import Published

#: ImageNet-1k, which published results are for, and which a plan assumes without data.root.
IMAGENET = DataFacts(
    "torchvision",
    Path("ImageNet-1k"),
    IMAGENET_IMAGES,
    50_000,
    wordnet_ids(),
    ("data.root is not set: this plan assumes ImageNet-1k.",),
)


class Intervals(NamedTuple):
    """How often something happens, in steps."""

    log: int
    evaluation: int
    checkpoint: int


@dataclass(frozen=True)
class Plan:
    """What a run will do: `make_plan` creates it, all else reads it, nothing is derived twice."""

    recipe: Recipe
    facts: DataFacts
    world_size: int  # ranks, one device each
    num_classes: int
    horizon: Horizon
    network: NetworkFacts
    teachers: tuple[Teacher, ...] = ()  # see planning.teachers
    start: str = ""  # a sentence about the initial weights; "": random ones, drawn from the seed
    start_notes: tuple[str, ...] = ()  # what a user should know of them, one sentence each
    origin: Origin = PROGRAM  # advice keeps the values that were typed

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the run."""
        return self.horizon.total_steps

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one epoch; an incomplete last batch is dropped."""
        return self.horizon.steps_per_epoch

    @property
    def epochs(self) -> int | Fraction:
        """Length of the run in epochs; a fraction only if it was given in batches."""
        epochs = self.horizon.epochs
        return int(epochs) if epochs.denominator == 1 else epochs

    @property
    def rank_size(self) -> int:
        """Examples of one optimizer step on one rank."""
        return self.recipe.batch.global_size // self.world_size

    @property
    def bn_size(self) -> int:
        """Examples that share BatchNorm statistics: one micro-batch."""
        return self.recipe.batch.micro_batch(self.rank_size)

    @property
    def microbatches(self) -> int:
        """Forward and backward passes of one optimizer step on one rank."""
        return self.rank_size // self.bn_size

    @property
    def batch_memory(self) -> int:
        """Bytes of the batches that all loaders keep; 0 for synthetic images, on the device."""
        if not self.facts.augments_samples:
            return 0
        data, share = self.recipe.data, self.share(0)
        capacities = Capacity.for_training(data, share), Capacity.for_evaluation(data, share)
        return self.world_size * sum(capacity.memory for capacity in capacities)

    def share(self, rank: int) -> Share:
        """Return a rank's share of every epoch."""
        batch = self.recipe.batch
        return Share(
            rank,
            self.world_size,
            batch.global_size,
            batch.eval_size,
            self.recipe.seed,
            self.loader_pixels,
            groups=self.world_size * self.microbatches,
            stored=next((teacher.stored for teacher in self.teachers), None),
        )

    @cached_property
    def extra_gradient_every(self) -> int:
        """Steps from one that takes two gradients to the next; 0: all take one."""
        return max((method.extra_gradient_every for method in self.new_stack()), default=0)

    @cached_property
    def flops(self) -> tuple[int, ...]:
        """Floating-point operations of training by epoch, of all devices and both passes."""
        size, interval = self.steps_per_epoch, self.extra_gradient_every or self.total_steps + 1
        found = []
        for epoch, side in enumerate(self.sizes):
            first, last = epoch * size, min((epoch + 1) * size, self.total_steps)
            passes = last - first + last // interval - first // interval
            own, teachers = self.network.operations(side).training, teaching(self.teachers, side)
            found.append(self.recipe.batch.global_size * (passes * own + (last - first) * teachers))
        return tuple(found)

    @property
    def disk(self) -> Disk:
        """The room on disk that the run needs."""
        saves = -(-self.total_steps // self.intervals.checkpoint)
        return disk_of(self.recipe, self.new_stack(), self.network.parameters, saves)

    @cached_property
    def warmup(self) -> int:
        """Steps of the warm-up."""
        return self.steps(self.recipe.schedule.warmup)

    @cached_property
    def trunk(self) -> int:
        """Steps before the cool-down of wsd, alike for every length; 0 with another schedule."""
        config = self.recipe.schedule
        return self.total_steps - self.steps(config.cooldown) if config.name == "wsd" else 0

    def steps(self, duration: str) -> int:
        """Convert a duration of the recipe to steps."""
        return self.horizon.steps(Duration.parse(duration))

    def lr_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        size, start = self.steps_per_epoch, self.recipe.schedule.start
        if self.recipe.schedule.interval == "epoch":
            step = schedule.epochwise(step, steps_per_epoch=size, warmup=self.warmup, start=start)
        return self.recipe.optimizer.lr * schedule.rise(step, self.warmup, start) * self._fall(step)

    @cached_property
    def _fall(self) -> Callable[[int], float]:
        config, total = self.recipe.schedule, self.total_steps
        falling = {"total": total, "warmup": self.warmup, "final": config.final}
        cooldown, milestones = self.steps(config.cooldown), self.recipe.milestones(self.horizon)
        joined = {"milestones": milestones, "values": config.values, "warmup": self.warmup}
        return {
            "cosine": partial(schedule.cosine, **falling, from_start=config.from_start),
            "linear": partial(schedule.polynomial, **falling),
            "polynomial": partial(schedule.polynomial, **falling, power=config.power),
            "wsd": partial(schedule.wsd, total=total, cooldown=cooldown, shape=config.shape),
            "multistep": partial(schedule.multistep, milestones=milestones, gamma=config.gamma),
            "piecewise": partial(schedule.piecewise, **joined),
            "constant": lambda step: 1.0,
        }[config.name]

    def pixels_at(self, step: int) -> int:
        """Return the side of the images that enter the model at a step, counted from 0."""
        return schedule.in_epoch(step // self.steps_per_epoch, self.sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Side of the images that enter the model, by epoch."""
        return tuple(side for _, side in self._sides)

    @cached_property
    def loader_pixels(self) -> tuple[int, ...]:
        """Side of the crops that the loader makes, by epoch; empty if always data.train_size."""
        found = tuple(loaded for loaded, _ in self._sides)
        return () if set(found) == {self.recipe.data.train_size} else found

    @cached_property
    def _sides(self) -> list[tuple[int, int]]:
        """Sides of the loader's crops and of the images that enter the model, by epoch."""
        methods, found = self.new_stack(), []
        for epoch in range(-(-self.total_steps // self.steps_per_epoch)):
            loaded = self.recipe.data.train_size
            for method in methods:
                loaded = method.loaded_size(loaded, epoch, self.horizon)
            side = loaded
            for method in methods:
                side = method.size_after(side, epoch, self.horizon)
            found.append((loaded, side))
        return found

    @cached_property
    def hooks(self) -> dict[str, list[str]]:
        """The methods that act at each hook, in order, by hook."""
        return self.new_stack().table()

    def new_stack(self) -> Stack:
        """Return new instances of the recipe's methods, as they act on this data."""
        return stack_of(self.recipe, self.facts)

    def logs_at(self, done: int) -> bool:
        """Return whether metrics are recorded after `done` steps; always at the end of an epoch."""
        return self._due(done, self.intervals.log) or done % self.steps_per_epoch == 0

    def evaluates_at(self, done: int) -> bool:
        """Return whether the model is evaluated after `done` steps; always at the end."""
        return self._due(done, self.intervals.evaluation, self.steps(self.recipe.evaluation.offset))

    def saves_at(self, done: int) -> bool:
        """Return whether a checkpoint is written after `done` steps; always at the trunk's end."""
        return done == self.trunk or self._due(done, self.intervals.checkpoint)

    @cached_property
    def intervals(self) -> Intervals:
        """Steps from one record, evaluation and checkpoint to the next."""
        recipe = self.recipe
        return Intervals(
            log=self.steps(recipe.log.interval),
            evaluation=self.steps(recipe.evaluation.interval),
            checkpoint=self.steps(recipe.checkpoint.interval),
        )

    def _due(self, done: int, interval: int, offset: int = 0) -> bool:
        return done == self.total_steps or (done - offset) % interval == 0

    @property
    def published(self) -> list[Published]:
        """Results of the recipe's authors; empty if their images or network were others."""
        if self.facts.train_examples != IMAGENET.train_examples:
            return []
        model = self.recipe.model.title
        return [result for result in self.recipe.published if result.model == model]

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Advice on this recipe, one sentence each; never a reason to stop."""
        stack, size = self.new_stack(), self.rank_size
        return tuple(notes_on(self.recipe, stack, self.horizon, size, self.origin.settings))

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON and for comparing two plans."""
        last = self.total_steps - 1
        points = sorted({0, min(self.warmup, last), self.total_steps // 2, last})
        return {
            "recipe": self.recipe.name,
            "total_steps": self.total_steps,
            "steps_per_epoch": self.steps_per_epoch,
            "epochs": float(self.epochs),
            "warmup_steps": self.warmup,
            "lr": {step: self.lr_at(step) for step in points},
            "sizes": list(self.sizes),
            "training_pflops": sum(self.flops) / 1e15,
            "batch": {
                "global": self.recipe.batch.global_size,
                "ranks": self.world_size,
                "rank": self.rank_size,
                "microbatches": self.microbatches,
                "bn": self.bn_size,
            },
            "model": {
                "name": self.recipe.model.title,
                "classes": self.num_classes,
                "parameters": self.network.parameters,
                "start": self.start,
                "teachers": [teacher.text for teacher in self.teachers],
            },
            "disk_bytes": self.disk.total,
            "data": {key: value for key, value in asdict(self.facts).items() if key != "sample"}
            | {"root": str(self.facts.root), "classes": len(self.facts.classes)},
            "hooks": self.hooks,
            "notes": [*self.start_notes, *self.notes],
        }


def stack_of(recipe: Recipe, facts: DataFacts) -> Stack:
    """Return new instances of a recipe's methods, as they act on these images."""
    return Stack.of(recipe.methods, facts.augments_samples, facts.class_images)
