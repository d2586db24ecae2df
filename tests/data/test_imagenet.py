"""The ImageNet-1k classes have names."""

import pytest

from resnet_recipes.data.imagenet import find_english_name


@pytest.mark.parametrize(
    ("wordnet_id", "name"),
    [("n02206856", "bee"), ("n01440764", "tench"), ("n15075141", "toilet tissue"), ("bees", "")],
)
def test_find_english_name_names_only_imagenet_classes(wordnet_id, name):
    assert find_english_name(wordnet_id) == name
