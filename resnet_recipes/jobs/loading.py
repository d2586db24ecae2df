"""What the cores of this machine supply, and what a run gains from images in memory."""

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote
from typing import NamedTuple

from resnet_recipes.base.cores import estimate_speedup
from resnet_recipes.data.loading.slots import count_workers
from resnet_recipes.data.native import explain_unavailable
from resnet_recipes.data.sample import Sample, Typical
from resnet_recipes.jobs.memory import InMemory, plan_memory, sample_images
from resnet_recipes.planning.course import estimate_run
from resnet_recipes.planning.estimate import Speeds
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.sections import AUTO

#: Loading limits a run that takes this many times as long as without loading.
LIMITS = 1.05


class Supply(NamedTuple):
    """What the loaders of all ranks deliver, in images per second."""

    rates: dict[int, float]  # by side of the crop, after the first epoch
    first_epoch: float

    @classmethod
    def of(cls, plan: Plan, sample: Sample | Typical) -> "Supply | None":
        """Return what loaders supply, judged by some images; None if one is damaged."""
        kept = plan_memory(plan, sample)
        config = replace(plan.recipe.data, memory_pixels=kept.pixels if kept else 0)
        threads = estimate_speedup(plan.world_size * max(1, count_workers(config, plan.world_size)))
        augment, sides = plan.new_stack().augment_sample(), plan.loader_pixels
        costs = {}
        for side in (sides[0], sides[-1]) if sides else (config.train_size,):
            if (cost := sample.crop_seconds(config, augment, side)) is None:
                return None
            costs[side] = cost
        share = kept.fraction if kept else 1.0
        rates = {
            side: threads / (share * later + (1 - share) * first)
            for side, (first, later) in costs.items()
        }
        first, _ = next(iter(costs.values()))
        return cls(rates, 1 / max(first / threads, sample.disk))


class Gain(NamedTuple):
    """What a run whose loading limits it would gain."""

    alone: float  # minutes if nothing had to be loaded
    kept: InMemory | None  # None: images do not fit into memory, or are there
    minutes: float  # with these
    fix: str  # what to type; "": nothing is known to help


def supplies(plan: Plan) -> Iterator[tuple[str, Supply, str]]:
    """Yield what loaders supply from where images are, and from memory; and how that is known."""
    if not (sample := sample_images(plan)):
        return
    here = "files" if plan.facts.backend == "torchvision" else ".beton"
    for pixels, place in ((0, here), (plan.recipe.data.memory_pixels or AUTO, "memory")):
        other = _with_memory(plan, pixels)
        found = Supply.of(other, sample)
        if found and (not pixels or plan_memory(other, sample)):
            yield place, found, sample.source_text


def _with_memory(plan: Plan, pixels: int | str) -> Plan:
    data = replace(plan.recipe.data, memory_pixels=pixels)
    return replace(plan, recipe=replace(plan.recipe, data=data))


def with_loaders(plan: Plan, speeds: Speeds, shares_cores: bool) -> Speeds:
    """Return speeds with loaders; with `shares_cores`, training takes turns with them."""
    sample = sample_images(plan)
    found = sample and Supply.of(plan, sample)
    if not found:
        return speeds
    made = replace(speeds, loader=found.rates, first_epoch=found.first_epoch)
    if not shares_cores:
        return made
    both = made.seconds_at(plan.sizes[0])[1] + made.load_seconds(plan.sizes[0])
    return replace(made, end_to_end=1 / both)


def gain(plan: Plan, speeds: Speeds) -> Gain | None:
    """Return what images in memory would save; None if loading does not limit the run."""
    free = replace(speeds, loader={}, first_epoch=None, end_to_end=None)
    alone, now = (estimate_run(plan, each).total_minutes for each in (free, speeds))
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
    kept, before, after = plan_memory(other, sample), Supply.of(plan, sample), None
    if kept:
        after = Supply.of(other, sample)
    if not (kept and before and after):
        return nothing
    minutes = estimate_run(plan, _faster(plan.sizes[0], speeds, before, after)).total_minutes
    return Gain(alone, kept, minutes, "cache=ram")


def _faster(side: int, speeds: Speeds, before: Supply, after: Supply) -> Speeds:
    """Return speeds with other loaders, in proportion to what was measured of these."""
    crop, measured = next(iter(before.rates)), 1 / speeds.load_seconds(side)
    ratio = after.rates[crop] / before.rates[crop]
    made = replace(
        speeds,
        loader={each: ratio * rate for each, rate in speeds.loader.items()},
        first_epoch=after.first_epoch * measured / before.rates[crop],
    )
    if not speeds.end_to_end:
        return made
    step = speeds.seconds_at(side)[1]
    contention = max(0.0, 1 / speeds.end_to_end - max(step, 1 / measured))
    both = max(step, made.load_seconds(side)) + contention / ratio
    return replace(made, end_to_end=1 / both)
