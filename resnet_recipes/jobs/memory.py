"""Find how many images fit into memory, and the size for `data.memory_pixels=auto`."""

from dataclasses import replace
from typing import NamedTuple

from resnet_recipes.base.cores import available_memory
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.text import Say, byte_size
from resnet_recipes.data.images.memory import reserve
from resnet_recipes.data.native import explain_unavailable
from resnet_recipes.data.sample import Sample, Typical
from resnet_recipes.planning.plan import IMAGENET, Plan
from resnet_recipes.recipe.sections import AUTO

#: Image sizes that auto tries, relative to the largest training crop. A crop that covers half of an
#: image, or two thirds, then needs no enlarging.
RATIOS = (2.0, 1.5)


class InMemory(NamedTuple):
    """Images of a size, and the memory for them."""

    pixels: int  # longer side
    needed: int  # approximate bytes of all images
    available: int  # available bytes

    @property
    def fraction(self) -> float:
        """The fraction of the images that fit."""
        return min(1.0, self.available / self.needed)

    @property
    def space(self) -> str:
        """The memory, described in text."""
        return f"{byte_size(self.needed)} of {byte_size(self.available)} usable"

    def __str__(self) -> str:
        if self.fraction == 1:
            return f"all images at {self.pixels} px: {self.space}"
        rest = "the others are decoded and shrunk for every crop"
        return f"{self.fraction:.0%} of the images at {self.pixels} px: {self.space}; {rest}"


def sample_images(plan: Plan) -> Sample | Typical | None:
    """Return sample images; None if the run reads no images, or none can be read."""
    if not plan.facts.augments_samples:
        return None
    return Typical() if plan.facts.root == IMAGENET.root else Sample.of(plan.facts)


def plan_memory(plan: Plan) -> InMemory | None:
    """Return the images that a plan keeps in memory; None if there are none or they are unknown.

    With auto, they have the largest size that fits for all images.
    """
    pixels, sample = plan.recipe.data.memory_pixels, sample_images(plan)
    if not pixels or sample is None:
        return None
    usable = _measure_usable(plan)
    sizes = _list_sizes(plan) if pixels == AUTO else [int(pixels)]
    images = (InMemory(size, sample.bytes_at(size), usable) for size in sizes)
    return next((each for each in images if pixels != AUTO or each.fraction == 1), None)


def _list_sizes(plan: Plan) -> list[int]:
    """Return the longer sides that auto tries, the largest first."""
    crop = max(plan.loader_pixels or (plan.recipe.data.train_size,))
    return [round(ratio * crop) for ratio in RATIOS]


def _measure_usable(plan: Plan) -> int:
    """Return the bytes of memory that images may fill."""
    available = available_memory()
    return max(0, available - reserve(available) - plan.batch_memory)


def resolve_memory_pixels(plan: Plan, say: Say) -> Plan:
    """Return the plan with the size of images in memory in place of auto.

    Raises RecipeError if no images can be kept in memory.
    """
    data = plan.recipe.data
    if not data.memory_pixels or not plan.facts.augments_samples:
        return plan
    if why := explain_unavailable():
        rule = f"needs the native decoder, which {why}"
        raise RecipeError.of("data.memory_pixels", data.memory_pixels, rule, "data.memory_pixels=0")
    if data.memory_pixels != AUTO:
        return plan
    if images := plan_memory(plan):
        pixels, reason = images.pixels, str(images)
    else:
        pixels, reason = 0, f"images do not fit into memory at {_list_sizes(plan)[-1]} px"
        space = f"{byte_size(_measure_usable(plan))} may be used"
        reason += f" ({space if sample_images(plan) else 'no image can be read'})"
    say(f"data.memory_pixels={pixels}: {reason}")
    return set_memory_pixels(plan, pixels)


def set_memory_pixels(plan: Plan, pixels: int | str) -> Plan:
    """Return the plan with another size of images in memory."""
    data = replace(plan.recipe.data, memory_pixels=pixels)
    return replace(plan, recipe=replace(plan.recipe, data=data))
