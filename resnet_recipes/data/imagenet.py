"""ImageNet-1k's classes, which networks of 1,000 unnamed outputs are for."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files


@cache
def get_wordnet_ids() -> tuple[str, ...]:
    """Return the names of ImageNet-1k's class folders in label order, as n01440764."""
    return tuple(files("resnet_recipes.data").joinpath("imagenet.txt").read_text().split())


def is_imagenet(classes: Sequence[str]) -> bool:
    """Return whether these are ImageNet-1k's classes, in any order."""
    return len(classes) == 1000 and {*classes} == {*get_wordnet_ids()}
