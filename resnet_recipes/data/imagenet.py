"""The ImageNet-1k classes, assumed for networks with 1,000 unnamed outputs."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files


@cache
def get_wordnet_ids() -> tuple[str, ...]:
    """Return the ImageNet-1k class folder names, such as n01440764, in label order."""
    return tuple(files("resnet_recipes.data").joinpath("imagenet.txt").read_text().split())


def is_imagenet(classes: Sequence[str]) -> bool:
    """Return whether these are the ImageNet-1k classes, in any order."""
    return len(classes) == 1000 and {*classes} == {*get_wordnet_ids()}
