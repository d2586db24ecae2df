"""Find how many images fit into memory, and the size for `data.memory_pixels=auto`."""

from dataclasses import replace
from typing import NamedTuple

from resnet_recipes.base.cores import get_available_memory
from resnet_recipes.base.errors import RecipeError, Value
from resnet_recipes.base.text import Say, format_bytes
from resnet_recipes.data.images.memory import compute_reserve
from resnet_recipes.data.native import find_decoder_fault
from resnet_recipes.data.sample import Sample
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.sections import AUTO

#: Image sizes that auto tries, relative to the largest training crop. A crop that covers half of an
#: image, or two thirds, then needs no enlarging.
SIZE_RATIOS = (2.0, 1.5)


class InMemory(NamedTuple):
    """Images of a size, and the memory for them."""

    longer_side: int  # pixels
    needed_bytes: int  # approximate bytes of all images
    usable_bytes: int

    @property
    def fraction(self) -> float:
        """The fraction of the images that fit."""
        return min(1.0, self.usable_bytes / self.needed_bytes)

    @property
    def space(self) -> str:
        """The memory, described in text."""
        return f"{format_bytes(self.needed_bytes)} of {format_bytes(self.usable_bytes)} usable"

    def __str__(self) -> str:
        return f"{self.fraction:.0%} of the images fit at {self.longer_side} px: {self.space}"


def list_options(plan: Plan) -> list[InMemory]:
    """Return the images that a plan may keep in memory, the largest first: auto tries several."""
    data = plan.recipe.data
    if not data.memory_pixels or not plan.facts.augments_images:
        return []
    sample = Sample.of(plan.facts)
    available = get_available_memory()
    usable = max(0, available - compute_reserve(available) - plan.batch_memory)
    if data.memory_pixels == AUTO:
        crop = max(plan.loader_sizes or (data.train_size,))
        sizes = [round(ratio * crop) for ratio in SIZE_RATIOS]
    else:
        sizes = [int(data.memory_pixels)]
    return [InMemory(size, sample.estimate_bytes(size), usable) for size in sizes]


def plan_memory(plan: Plan) -> InMemory | None:
    """Return the images that a plan keeps in memory; None if it keeps none.

    With auto, they have the largest size that fits for all images.
    """
    is_auto = plan.recipe.data.memory_pixels == AUTO
    options = list_options(plan)
    return next((option for option in options if option.fraction == 1 or not is_auto), None)


def resolve_memory_pixels(plan: Plan, say: Say) -> Plan:
    """Return the plan with the size of images in memory in place of auto.

    Raises RecipeError if that needs the native decoder, which cannot be used here.
    """
    memory_pixels = plan.recipe.data.memory_pixels
    options = list_options(plan)
    if not options:
        return plan
    if why := find_decoder_fault():
        clause = f"needs the native decoder, which {why}"
        raise RecipeError.of("data.memory_pixels", memory_pixels, clause, Value("0"))
    if memory_pixels != AUTO:
        return plan
    memory = plan_memory(plan)
    memory_pixels = memory.longer_side if memory else 0
    say(f"cache={memory_pixels}: {memory or options[-1]}")
    return set_memory_pixels(plan, memory_pixels)


def set_memory_pixels(plan: Plan, memory_pixels: int | str) -> Plan:
    """Return the plan with another size of images in memory."""
    data = replace(plan.recipe.data, memory_pixels=memory_pixels)
    return replace(plan, recipe=replace(plan.recipe, data=data))
