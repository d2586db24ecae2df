"""Estimate the speed of loaders on this machine, and the gain of faster loading."""

from dataclasses import replace
from shlex import quote
from typing import NamedTuple, Self

from resnet_recipes import cuda
from resnet_recipes.base.cores import estimate_speedup
from resnet_recipes.base.errors import Command, Note, TrainingError
from resnet_recipes.data.loading.slots import count_workers
from resnet_recipes.data.native import find_decoder_fault
from resnet_recipes.data.sample import Sample
from resnet_recipes.jobs.machine.memory import InMemory, plan_memory, set_memory_pixels
from resnet_recipes.planning.estimate import RunForecast, Speeds, estimate
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.sections import AUTO

#: Loading limits a run that takes at least this many times as long as without loading.
MIN_LIMITED_RATIO = 1.05


class Supply(NamedTuple):
    """Images per second of the loaders of all ranks."""

    images_per_second: dict[int, float]  # speed by crop size, after the first epoch
    first_epoch_images_per_second: float

    @classmethod
    def of(cls, plan: Plan) -> Self | None:
        """Return the speed of loaders; None if the run reads no images, or some are damaged."""
        if not plan.facts.augments_images:
            return None
        sample = Sample.of(plan.facts)
        memory = plan_memory(plan)
        config = plan.recipe.data
        fraction_in_memory = memory.fraction if memory else 1.0
        config = replace(config, memory_pixels=memory.longer_side if memory else 0)
        threads = estimate_speedup(plan.world_size * max(1, count_workers(config, plan.world_size)))
        augment = plan.new_stack().augment_image()
        image_sizes = plan.loader_sizes or (config.train_size,)
        try:
            costs = {
                image_size: sample.crop_seconds(config, augment, image_size)
                for image_size in (image_sizes[0], image_sizes[-1])
            }
        except TrainingError:
            return None
        rates = {
            image_size: threads
            / (fraction_in_memory * cost.later_epochs + (1 - fraction_in_memory) * cost.first_epoch)
            for image_size, cost in costs.items()
        }
        first_epoch_rate = 1 / max(costs[image_sizes[0]].first_epoch / threads, sample.disk_seconds)
        return cls(rates, first_epoch_rate)


def add_loading(plan: Plan, speeds: Speeds) -> Speeds:
    """Return speeds with loaders; on a CPU, they take the cores of training."""
    if not (supply := Supply.of(plan)):
        return speeds
    new_speeds = replace(
        speeds,
        loader_images_per_second=supply.images_per_second,
        first_epoch_images_per_second=supply.first_epoch_images_per_second,
    )
    if plan.recipe.launch.device != "cpu" and cuda.find_gpus().count:
        return new_speeds
    size = plan.image_sizes[0]
    seconds = new_speeds.seconds_at(size).median + new_speeds.load_seconds(size)
    return replace(new_speeds, total_images_per_second=1 / seconds)


class Gain(NamedTuple):
    """The minutes of a run that is limited by loading, and how to reduce them."""

    minutes_without_loading: float
    memory: InMemory | None  # None: keeping images in memory is impossible or does not help
    minutes_in_memory: float  # the minutes as they are now, if `memory` is None
    fix: str  # the setting or command to use; "": nothing is known to help


def find_gain(plan: Plan, speeds: Speeds) -> Gain | None:
    """Return how to shorten a run that loading limits; None if loading does not limit it.

    Images in memory come first, then smaller files. If the loader is faster than the steps, the
    gain of memory is the difference of two predictions. A measured time would include how much
    loading and training slow each other on a CPU.
    """
    free = replace(
        speeds,
        loader_images_per_second={},
        first_epoch_images_per_second=None,
        total_images_per_second=None,
    )
    alone, expected = (estimate(plan, rates) for rates in (free, speeds))
    shortest, now = alone.total_minutes, expected.total_minutes
    from_files = now
    if not any(phase.limit == "loader" for phase in expected.phases):
        from_files = estimate(plan, add_loading(plan, free)).total_minutes
    if not speeds.loader_images_per_second or min(now, from_files) < MIN_LIMITED_RATIO * shortest:
        return None
    data = plan.recipe.data
    other = set_memory_pixels(plan, AUTO)
    memory = None if data.memory_pixels or find_decoder_fault() else plan_memory(other)
    if memory:
        faster = add_loading(other, free)
        saved_minutes = from_files - estimate(plan, faster).total_minutes
        if faster.loader_images_per_second and saved_minutes > 0:
            return Gain(shortest, memory, max(shortest, now - saved_minutes), "cache=auto")
    folder = quote(data.root.rstrip("/"))
    smaller = Command(f"resnet-recipes convert {folder} {folder}-beton write_mode=jpg levels=2")
    has_folder = data.root and plan.facts.backend == "torchvision"
    return Gain(shortest, None, now, smaller if has_folder else "")


def find_loading_note(plan: Plan, forecast: RunForecast) -> Note | None:
    """Return a note on the time lost to loading; None if it rounds to nothing."""
    if not (gain := find_gain(plan, forecast.speeds)):
        return None
    now, least = forecast.estimate.total_minutes, gain.minutes_without_loading
    limited, alone, other = (
        forecast.format_time(60 * minutes, "") for minutes in (now, least, gain.minutes_in_memory)
    )
    if limited == alone:
        return None
    better = f"; decoded in memory ({gain.memory.space}): {other}" if gain.memory else ""
    text = f"slows the run down: {limited} instead of {alone}{better}"
    return Note(text, gain.fix)
