"""The ImageNet-1k classes, assumed for networks with 1,000 unnamed outputs."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files


@cache
def get_wordnet_ids() -> tuple[str, ...]:
    """Return the ImageNet-1k class folder names, such as n01440764, in label order."""
    return tuple(files("resnet_recipes.data").joinpath("imagenet.txt").read_text().split())


def find_english_name(wordnet_id: str) -> str:
    """Return the English name of an ImageNet-1k class, such as "bee"; "" for other classes."""
    if wordnet_id not in get_wordnet_ids():
        return ""
    from torchvision.models import ResNet50_Weights

    names = ResNet50_Weights.IMAGENET1K_V1.meta["categories"]
    return names[get_wordnet_ids().index(wordnet_id)]


def is_imagenet(classes: Sequence[str]) -> bool:
    """Return whether these are the ImageNet-1k classes, in any order."""
    return len(classes) == 1000 and {*classes} == {*get_wordnet_ids()}
