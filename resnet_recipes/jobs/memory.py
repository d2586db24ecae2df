"""Find how many images fit into memory, and the size for `data.memory_pixels=auto`."""

from dataclasses import replace
from typing import NamedTuple

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.text import Say, byte_size
from resnet_recipes.data.native import explain_unavailable
from resnet_recipes.data.sample import Sample, Typical, measure_usable_memory
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
        space = self.space
        if self.fraction == 1:
            return f"all images at {self.pixels} px: {space}"
        rest = "the others are decoded and shrunk for every crop"
        return f"{self.fraction:.0%} of the images at {self.pixels} px: {space}; {rest}"


def list_sizes(plan: Plan) -> list[int]:
    """Return the longer sides that auto tries, the largest first."""
    return [
        round(ratio * max(plan.loader_pixels or (plan.recipe.data.train_size,))) for ratio in RATIOS
    ]


def sample_images(plan: Plan) -> Sample | Typical | None:
    """Return sample images; None if the run reads no images, or none can be read."""
    if not plan.facts.augments_samples:
        return None
    return Typical() if plan.facts.root == IMAGENET.root else Sample.of(plan.facts)


def find_largest(plan: Plan, sample: Sample | Typical) -> InMemory | None:
    """Return the largest of a few sizes at which all images fit, or None."""
    free = _measure_free(plan)
    candidates = (InMemory(pixels, sample.bytes_at(pixels), free) for pixels in list_sizes(plan))
    return next((images for images in candidates if images.needed <= free), None)


def _measure_free(plan: Plan) -> int:
    """Return the free bytes for images."""
    return max(0, measure_usable_memory() - plan.batch_memory)


def plan_memory(plan: Plan, sample: Sample | Typical | None) -> InMemory | None:
    """Return the images that a plan keeps in memory; None if there are none or they are unknown."""
    pixels = plan.recipe.data.memory_pixels
    if not pixels or sample is None:
        return None
    if pixels == AUTO:
        return find_largest(plan, sample)
    return InMemory(int(pixels), sample.bytes_at(int(pixels)), _measure_free(plan))


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
    sample = sample_images(plan)
    images = sample and find_largest(plan, sample)
    if images:
        say(f"data.memory_pixels={images.pixels}: {images}")
    else:
        why = (
            "no image can be read"
            if sample is None
            else f"{byte_size(measure_usable_memory())} may be used"
        )
        say(
            f"data.memory_pixels=0: images do not fit into memory at {min(list_sizes(plan))} px "
            f"({why})"
        )
    data = replace(data, memory_pixels=images.pixels if images else 0)
    return replace(plan, recipe=replace(plan.recipe, data=data))
