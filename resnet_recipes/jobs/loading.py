"""Estimate the speed of loaders on this machine, and the gain of images in memory."""

from dataclasses import replace
from shlex import quote
from typing import NamedTuple

from resnet_recipes.base.cores import estimate_speedup
from resnet_recipes.data.loading.slots import count_workers
from resnet_recipes.data.native import explain_unavailable
from resnet_recipes.doctor import cuda
from resnet_recipes.jobs.memory import InMemory, plan_memory, sample_images, set_memory_pixels
from resnet_recipes.planning.estimate import Speeds, estimate
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.sections import AUTO

#: If a run takes this many times as long as without loading, loading limits it.
LIMITS = 1.05


class Supply(NamedTuple):
    """Images per second of the loaders of all ranks."""

    rates: dict[int, float]  # by crop size, after the first epoch
    first_epoch: float
    source: str  # source of the numbers

    @classmethod
    def of(cls, plan: Plan) -> "Supply | None":
        """Return the speed of loaders; None if images are not read, unknown or damaged."""
        if not (sample := sample_images(plan)):
            return None
        memory = plan_memory(plan)
        config = replace(plan.recipe.data, memory_pixels=memory.pixels if memory else 0)
        threads = estimate_speedup(plan.world_size * max(1, count_workers(config, plan.world_size)))
        augment, sides = plan.new_stack().augment_sample(), plan.loader_pixels
        share = memory.fraction if memory else 1.0
        rates, first_epoch = {}, 0.0
        for side in (sides[0], sides[-1]) if sides else (config.train_size,):
            if (cost := sample.crop_seconds(config, augment, side)) is None:
                return None
            rates[side] = threads / (share * cost.later + (1 - share) * cost.first)
            first_epoch = first_epoch or 1 / max(cost.first / threads, sample.disk)
        return cls(rates, first_epoch, sample.source_text)


def list_supplies(plan: Plan) -> dict[str, Supply]:
    """Return the speed of loaders for the location of the images, and for memory."""
    here = "files" if plan.facts.backend == "torchvision" else ".beton"
    supplies = {here: Supply.of(set_memory_pixels(plan, 0))}
    other = set_memory_pixels(plan, plan.recipe.data.memory_pixels or AUTO)
    if plan_memory(other):
        supplies["memory"] = Supply.of(other)
    return {place: supply for place, supply in supplies.items() if supply}


def with_loaders(plan: Plan, speeds: Speeds) -> Speeds:
    """Return speeds with loaders, which alternate with training on the same cores."""
    if not (supply := Supply.of(plan)):
        return speeds
    loaded = replace(speeds, loader=supply.rates, first_epoch=supply.first_epoch)
    if plan.recipe.launch.device != "cpu" and cuda.find_gpus().count:
        return loaded
    both = loaded.seconds_at(plan.sizes[0]).median + loaded.load_seconds(plan.sizes[0])
    return replace(loaded, end_to_end=1 / both)


class Gain(NamedTuple):
    """The gain of a run that is limited by loading."""

    alone: float  # minutes without loading
    memory: InMemory | None  # None: images do not fit into memory, or are already there
    minutes: float  # minutes with images in memory
    fix: str  # the setting or command to use; "": nothing is known to help


def find_gain(plan: Plan, speeds: Speeds) -> Gain | None:
    """Return the time saved by images in memory; None if loading does not limit the run."""
    free = replace(speeds, loader={}, first_epoch=None, end_to_end=None)
    alone, now = (estimate(plan, each).total_minutes for each in (free, speeds))
    if not speeds.loader or now < LIMITS * alone:
        return None
    data, other = plan.recipe.data, set_memory_pixels(plan, AUTO)
    if not data.memory_pixels and not explain_unavailable() and (memory := plan_memory(other)):
        faster = with_loaders(other, free)
        minutes = estimate(plan, faster).total_minutes
        if faster.loader and minutes < now:
            return Gain(alone, memory, minutes, "cache=ram")
    folder = quote(data.root.rstrip("/"))
    smaller = f"resnet-recipes convert {folder} {folder}-beton write_mode=jpg levels=2"
    has_folder = data.root and plan.facts.backend == "torchvision"
    return Gain(alone, None, now, smaller if has_folder else "")
