"""Estimate the speed of loaders on this machine, and the gain from images in memory."""

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote
from typing import NamedTuple

from resnet_recipes.base.cores import estimate_speedup
from resnet_recipes.data.loading.slots import count_workers
from resnet_recipes.data.native import explain_unavailable
from resnet_recipes.data.sample import Sample, Typical
from resnet_recipes.jobs.memory import InMemory, plan_memory, sample_images
from resnet_recipes.planning.estimate import Speeds, estimate
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.sections import AUTO

#: If a run takes this many times as long as without loading, loading limits it.
LIMITS = 1.05


class Supply(NamedTuple):
    """Images per second of the loaders of all ranks."""

    rates: dict[int, float]  # by crop size, after the first epoch
    first_epoch: float

    @classmethod
    def of(cls, plan: Plan, sample: Sample | Typical) -> "Supply | None":
        """Return the speed of loaders, measured on a few images; None if an image is damaged."""
        memory = plan_memory(plan, sample)
        config = replace(plan.recipe.data, memory_pixels=memory.pixels if memory else 0)
        threads = estimate_speedup(plan.world_size * max(1, count_workers(config, plan.world_size)))
        augment, sides = plan.new_stack().augment_sample(), plan.loader_pixels
        costs = {}
        for side in (sides[0], sides[-1]) if sides else (config.train_size,):
            if (cost := sample.crop_seconds(config, augment, side)) is None:
                return None
            costs[side] = cost
        share = memory.fraction if memory else 1.0
        rates = {
            side: threads / (share * later + (1 - share) * first)
            for side, (first, later) in costs.items()
        }
        first, _ = next(iter(costs.values()))
        return cls(rates, 1 / max(first / threads, sample.disk))


class Gain(NamedTuple):
    """The gain of a run that is limited by loading."""

    alone: float  # minutes without loading
    memory: InMemory | None  # None: images do not fit into memory, or are already there
    minutes: float  # minutes with images in memory
    fix: str  # the setting to use; "": nothing is known to help


class PlaceSupply(NamedTuple):
    """The speed of loaders for one location of the images."""

    place: str  # "files", ".beton" or "memory"
    supply: Supply
    source: str  # source of the numbers


def list_supplies(plan: Plan) -> Iterator[PlaceSupply]:
    """Yield the speed of loaders for the location of the images, and for memory."""
    if not (sample := sample_images(plan)):
        return
    here = "files" if plan.facts.backend == "torchvision" else ".beton"
    for pixels, place in ((0, here), (plan.recipe.data.memory_pixels or AUTO, "memory")):
        other = _with_memory(plan, pixels)
        supply = Supply.of(other, sample)
        if supply and (not pixels or plan_memory(other, sample)):
            yield PlaceSupply(place, supply, sample.source_text)


def _with_memory(plan: Plan, pixels: int | str) -> Plan:
    data = replace(plan.recipe.data, memory_pixels=pixels)
    return replace(plan, recipe=replace(plan.recipe, data=data))


def with_loaders(plan: Plan, speeds: Speeds, shares_cores: bool) -> Speeds:
    """Return speeds with loaders; with `shares_cores`, training and loading alternate."""
    sample = sample_images(plan)
    supply = sample and Supply.of(plan, sample)
    if not supply:
        return speeds
    loaded = replace(speeds, loader=supply.rates, first_epoch=supply.first_epoch)
    if not shares_cores:
        return loaded
    both = loaded.seconds_at(plan.sizes[0]).median + loaded.load_seconds(plan.sizes[0])
    return replace(loaded, end_to_end=1 / both)


def find_gain(plan: Plan, speeds: Speeds) -> Gain | None:
    """Return the time saved by images in memory; None if loading does not limit the run."""
    free = replace(speeds, loader={}, first_epoch=None, end_to_end=None)
    alone, now = (estimate(plan, each).total_minutes for each in (free, speeds))
    if not speeds.loader or now < LIMITS * alone:
        return None
    sample, data = sample_images(plan), plan.recipe.data
    folder = quote(data.root.rstrip("/"))
    smaller = f"resnet-recipes convert {folder} {folder}-beton write_mode=jpg levels=2"
    has_folder = data.root and plan.facts.backend == "torchvision"
    nothing = Gain(alone, None, now, smaller if has_folder else "")
    if data.memory_pixels or sample is None or explain_unavailable():
        return nothing
    other = _with_memory(plan, AUTO)
    memory, before, after = plan_memory(other, sample), Supply.of(plan, sample), None
    if memory:
        after = Supply.of(other, sample)
    if not (memory and before and after):
        return nothing
    minutes = estimate(plan, _speed_up(plan.sizes[0], speeds, before, after)).total_minutes
    return Gain(alone, memory, minutes, "cache=ram")


def _speed_up(side: int, speeds: Speeds, before: Supply, after: Supply) -> Speeds:
    """Return speeds with other loaders, in proportion to the measured speeds."""
    crop, current = next(iter(before.rates)), 1 / speeds.load_seconds(side)
    ratio = after.rates[crop] / before.rates[crop]
    faster = replace(
        speeds,
        loader={each: ratio * rate for each, rate in speeds.loader.items()},
        first_epoch=after.first_epoch * current / before.rates[crop],
    )
    if not speeds.end_to_end:
        return faster
    step = speeds.seconds_at(side).median
    contention = max(0.0, 1 / speeds.end_to_end - max(step, 1 / current))
    both = max(step, faster.load_seconds(side)) + contention / ratio
    return replace(faster, end_to_end=1 / both)
