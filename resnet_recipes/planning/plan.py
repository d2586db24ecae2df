"""Everything about a run, derived once from the recipe, the data and the number of ranks."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from resnet_recipes.base import schedule
from resnet_recipes.base.duration import Duration, Horizon, Recurrence
from resnet_recipes.base.errors import Note
from resnet_recipes.data.base import Batching, DataFacts
from resnet_recipes.data.imagenet import get_wordnet_ids
from resnet_recipes.data.loading.slots import Capacity
from resnet_recipes.methods.stack import Stack
from resnet_recipes.planning.advice import advise
from resnet_recipes.planning.disk import Disk, estimate_disk
from resnet_recipes.planning.network_facts import NetworkFacts, Teacher, count_teacher_flops
from resnet_recipes.planning.published_results import IMAGENET_IMAGES
from resnet_recipes.recipe.library import PYTHON_ORIGIN, Origin
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder.facts import PublishedResult

#: Starts of the settings that change how a network is trained; not its duration or seed.
_TRAINING_SETTINGS = (
    *("batch.global_size", "batch.bn_size", "optimizer", "schedule", "methods"),
    *("model", "precision", "data.train_size", "data.crop", "data.eval"),
)

#: ImageNet-1k: published results use it, and a plan without data.root assumes it.
IMAGENET_FACTS = DataFacts(
    "torchvision",
    Path("ImageNet-1k"),
    IMAGENET_IMAGES,
    50_000,
    get_wordnet_ids(),
    (Note("data= is missing, so this plan assumes ImageNet-1k"),),
)


class InitialWeights(NamedTuple):
    """The initial weights of a run, if they are not random."""

    source: str  # file, published name, or another run and its step
    is_stable_phase: bool = False  # whether the run continues the stable phase of the other run
    details: tuple[str, ...] = ()  # weights that are loaded, replaced and frozen
    methods: tuple[tuple[str, bool], ...] = ()  # network methods, and whether the run keeps them
    notes: tuple[Note, ...] = ()  # notes on these weights
    is_absent: bool = False  # whether the weights are not on this machine

    def __str__(self) -> str:
        if self.is_stable_phase:
            return f"the stable phase of {self.source}; the time counts all steps"
        parts = [f"from {self.source}", *self.details]
        for name, is_kept in self.methods:
            parts.append(
                f"{name} is kept, '~methods.{name}' removes it" if is_kept else f"{name} is removed"
            )
        return "; ".join(parts)


@dataclass(frozen=True)
class Plan:
    """Everything that a run will do: the recipe, and what `make_plan` derives from it."""

    recipe: Recipe
    facts: DataFacts
    world_size: int  # ranks, one device each
    num_classes: int
    horizon: Horizon
    network: NetworkFacts
    teachers: tuple[Teacher, ...] = ()  # see planning.teachers
    start: InitialWeights | None = None  # None: random weights, generated from the seed
    origin: Origin = PYTHON_ORIGIN  # what the recipe was composed from, for advice

    @property
    def total_steps(self) -> int:
        return self.horizon.total_steps

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one epoch; an incomplete last batch is dropped."""
        return self.horizon.steps_per_epoch

    @property
    def epochs(self) -> float:
        """Duration of the run in epochs; `horizon.epochs` is exact."""
        return float(self.horizon.epochs)

    @property
    def rank_size(self) -> int:
        """Examples of one optimizer step on one rank."""
        return self.recipe.batch.global_size // self.world_size

    @property
    def micro_batch_size(self) -> int:
        """Examples that share BatchNorm statistics: one micro-batch."""
        return self.recipe.batch.get_micro_batch_size(self.rank_size)

    @property
    def micro_batches(self) -> int:
        """Forward and backward passes of one optimizer step on one rank."""
        return self.rank_size // self.micro_batch_size

    @property
    def batch_memory(self) -> int:
        """Bytes of the batches that all loaders keep; 0 for synthetic images on the device."""
        if not self.facts.augments_images:
            return 0
        data = self.recipe.data
        batching = self.batching(0)
        capacities = Capacity.for_training(data, batching), Capacity.for_evaluation(data, batching)
        return self.world_size * sum(capacity.memory for capacity in capacities)

    def batching(self, rank: int) -> Batching:
        """Return the part of each epoch that a rank reads."""
        batch = self.recipe.batch
        return Batching(
            rank,
            self.world_size,
            batch.global_size,
            batch.eval_size,
            self.recipe.seed,
            self.loader_sizes,
            groups=self.world_size * self.micro_batches,
            soft_labels=next((teacher.soft_labels for teacher in self.teachers), None),
        )

    @cached_property
    def extra_gradient_every(self) -> int:
        """Interval between steps with two gradients, in steps; 0: all steps take one."""
        return max((method.extra_gradient_every for method in self.new_stack()), default=0)

    @cached_property
    def epoch_images(self) -> tuple[int, ...]:
        """Images trained in each epoch, on all devices; the last epoch may be incomplete."""
        size, images = self.steps_per_epoch, self.recipe.batch.global_size
        starts = range(0, self.total_steps, size)
        return tuple(images * min(size, self.total_steps - first) for first in starts)

    @property
    def evaluated_images(self) -> int:
        """Images of all evaluations, each as often as it is computed."""
        return (self.evaluations.count() + ("eval_weights" in self.hooks)) * self.evaluation_images

    @property
    def evaluation_images(self) -> int:
        """Images of one evaluation, each as often as it is computed."""
        return (1 + self.recipe.evaluation.flip) * self.facts.eval_examples

    @property
    def evaluation_flops(self) -> int:
        """FLOPs of one evaluation."""
        return self.evaluation_images * self.network.count_flops(self.recipe.data.eval_size).forward

    @property
    def saves(self) -> int:
        """Number of checkpoints that the run writes."""
        stable = self.stable_steps
        return self._saves.count() + (stable > 0 and not self._saves.is_due(stable))

    @cached_property
    def passes(self) -> float:
        """Compute of a run in training passes of its images.

        2 if every step takes two gradients; a teacher adds its forward pass.
        """
        pairs = zip(self.epoch_images, self.image_sizes, strict=True)
        return sum(self.flops) / sum(
            images * self.network.count_flops(image_size).training for images, image_size in pairs
        )

    @cached_property
    def flops(self) -> tuple[int, ...]:
        """Training FLOPs by epoch, over all devices, forward and backward."""
        size = self.steps_per_epoch
        interval = self.extra_gradient_every or self.total_steps + 1
        flops = []
        for epoch, image_size in enumerate(self.image_sizes):
            first = epoch * size
            last = min((epoch + 1) * size, self.total_steps)
            passes = last - first + last // interval - first // interval
            per_image = passes * self.network.count_flops(image_size).training
            per_image += (last - first) * count_teacher_flops(self.teachers, image_size)
            flops.append(self.recipe.batch.global_size * per_image)
        return tuple(flops)

    @property
    def disk(self) -> Disk:
        """The disk space that the run needs."""
        return estimate_disk(self.recipe, self.new_stack(), self.network, self.saves)

    @cached_property
    def warmup(self) -> int:
        """Number of warm-up steps."""
        return self.steps(self.recipe.schedule.warmup)

    @cached_property
    def stable_steps(self) -> int:
        """Number of steps before the wsd cooldown; 0 for other schedules."""
        config = self.recipe.schedule
        return self.total_steps - self.steps(config.cooldown) if config.name == "wsd" else 0

    def steps(self, duration: str) -> int:
        """Convert a duration of the recipe to steps."""
        return self.horizon.steps(Duration.parse(duration))

    def lr_at(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        size, start = self.steps_per_epoch, self.recipe.schedule.start
        if self.recipe.schedule.interval == "epoch":
            step = schedule.get_lr_step(step, steps_per_epoch=size, warmup=self.warmup, start=start)
        return (
            self.recipe.optimizer.lr
            * schedule.rise(step, self.warmup, start)
            * self._decay_curve(step)
        )

    @cached_property
    def _decay_curve(self) -> Callable[[int], float]:
        config, total = self.recipe.schedule, self.total_steps
        decay = {"total": total, "warmup": self.warmup, "final": config.final}
        cooldown = self.steps(config.cooldown)
        milestones = self.recipe.milestones(self.horizon)
        return {
            "cosine": partial(schedule.cosine, **decay, from_start=config.from_start),
            "linear": partial(schedule.polynomial, **decay),
            "polynomial": partial(schedule.polynomial, **decay, power=config.power),
            "wsd": partial(schedule.wsd, total=total, cooldown=cooldown, shape=config.shape),
            "multistep": partial(schedule.multistep, milestones=milestones, gamma=config.gamma),
            "constant": lambda step: 1.0,
        }[config.name]

    def image_size_at(self, step: int) -> int:
        """Return the size of the network's input images at a step, counted from 0."""
        return schedule.get_epoch_value(step // self.steps_per_epoch, self.image_sizes)

    @cached_property
    def image_sizes(self) -> tuple[int, ...]:
        """Size of the network's input images, in pixels, by epoch."""
        return tuple(image_size for _, image_size in self._sizes_by_epoch)

    @cached_property
    def loader_sizes(self) -> tuple[int, ...]:
        """Size of the loader's crops, in pixels, by epoch; empty if always data.train_size."""
        sizes = tuple(crop for crop, _ in self._sizes_by_epoch)
        return () if set(sizes) == {self.recipe.data.train_size} else sizes

    @cached_property
    def _sizes_by_epoch(self) -> list[tuple[int, int]]:
        """Sizes of the loader's crops and of the network's input images, by epoch."""
        methods = self.new_stack()
        sizes_by_epoch = []
        for epoch in range(-(-self.total_steps // self.steps_per_epoch)):
            crop = self.recipe.data.train_size
            for method in methods:
                crop = method.loaded_size(crop, epoch, self.horizon)
            image_size = crop
            for method in methods:
                image_size = method.size_after(image_size, epoch, self.horizon)
            sizes_by_epoch.append((crop, image_size))
        return sizes_by_epoch

    @cached_property
    def hooks(self) -> dict[str, list[str]]:
        """The methods that act at each hook, in order, by hook."""
        return self.new_stack().group_by_hook()

    def new_stack(self) -> Stack:
        """Return new instances of the recipe's methods, as they act on this data."""
        return make_stack(self.recipe, self.facts)

    def logs_at(self, done: int) -> bool:
        """Return whether metrics are recorded after `done` steps; always at the end of an epoch."""
        return self._logs.is_due(done) or done % self.steps_per_epoch == 0

    def evaluates_at(self, done: int) -> bool:
        """Return whether the model is evaluated after `done` steps; always at the end."""
        return self.evaluations.is_due(done)

    def saves_at(self, done: int) -> bool:
        """Return whether a checkpoint is written after `done` steps.

        The last step of the stable phase always has a checkpoint.
        """
        return done == self.stable_steps or self._saves.is_due(done)

    @cached_property
    def evaluations(self) -> Recurrence:
        """When the model is evaluated."""
        config = self.recipe.evaluation
        return self._make_recurrence(config.interval, self.steps(config.offset))

    @cached_property
    def _logs(self) -> Recurrence:
        return self._make_recurrence(self.recipe.log.interval)

    @cached_property
    def _saves(self) -> Recurrence:
        return self._make_recurrence(self.recipe.checkpoint.interval)

    def _make_recurrence(self, interval: str, offset: int = 0) -> Recurrence:
        steps = self.horizon.interval(Duration.parse(interval))
        return Recurrence(steps, self.total_steps, offset)

    @property
    def published(self) -> list[PublishedResult]:
        """Results of the recipe's authors; empty if they used other images or another network."""
        if self.facts.train_examples != IMAGENET_FACTS.train_examples:
            return []
        model = self.recipe.model.title
        return [result for result in self.recipe.published if result.model == model]

    @property
    def published_recipe(self) -> str:
        """The recipe of the published results: "" if it is this one, else "unchanged mild".

        Settings that a user typed make a difference, except for duration, seed, data and machine.
        """
        differs = any(key.startswith(_TRAINING_SETTINGS) for key in self.origin.settings)
        return f"unchanged {self.recipe.name}" if differs else ""

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """Notes on the initial weights and advice on the recipe.

        A run that is resumed or extends another one cannot change its settings, so it gets none.
        """
        if self.recipe.run.extends or self.origin.entry.origin == "run":
            return ()
        advice = advise(self.recipe, self.new_stack(), self.horizon, self.rank_size, self.origin)
        return (*(self.start.notes if self.start else ()), *advice)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values, for example to compare two plans."""
        facts = asdict(self.facts)
        last = self.total_steps - 1
        points = sorted({0, min(self.warmup, last), self.total_steps // 2, last})
        return {
            "recipe": self.recipe.name,
            "total_steps": self.total_steps,
            "steps_per_epoch": self.steps_per_epoch,
            "epochs": self.epochs,
            "warmup_steps": self.warmup,
            "lr": {step: self.lr_at(step) for step in points},
            "sizes": list(self.image_sizes),
            "training_pflops": sum(self.flops) / 1e15,
            "batch": {
                "global": self.recipe.batch.global_size,
                "ranks": self.world_size,
                "rank": self.rank_size,
                "microbatches": self.micro_batches,
                "bn": self.micro_batch_size,
            },
            "model": {
                "name": self.recipe.model.title,
                "classes": self.num_classes,
                "parameters": self.network.parameters,
                "start": str(self.start or ""),
                "teachers": [teacher.text for teacher in self.teachers],
            },
            "disk_bytes": self.disk.total_bytes,
            "data": {key: facts[key] for key in facts if key not in ("sample", "notes")}
            | {"root": str(self.facts.root), "classes": len(self.facts.classes)},
            "hooks": self.hooks,
        }


def make_stack(recipe: Recipe, facts: DataFacts) -> Stack:
    """Return new instances of a recipe's methods, as they act on these images."""
    return Stack.of(recipe.methods, facts.augments_images, facts.class_images)
