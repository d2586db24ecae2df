"""What acts where in the packaged recipes.

Their hook tables to the letter, whatever the order of their keys.
"""

import random
import re
from pathlib import Path

import pytest

from resnet_recipes.planning import outline
from resnet_recipes.planning.plan import IMAGENET, Plan, make_plan
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.library import packaged_folder


def planned(name: str) -> Plan:
    """Plan a recipe on ImageNet with 8 devices."""
    return make_plan(compose(name, needs_data=False).recipe, IMAGENET, 8)


def with_methods_in_another_order(text: str, seed: int) -> str:
    """Return a recipe file with the keys of `methods`, and those of each method, shuffled."""
    shuffle = random.Random(seed).shuffle
    head, section, tail = re.fullmatch(
        r"(.*^methods:\n)(.*?)(^\n.*)", text, re.DOTALL | re.MULTILINE
    ).groups()
    methods = []
    for method in re.split(r"^(?=  \w)", section, flags=re.MULTILINE)[1:]:
        name, *settings = method.splitlines(keepends=True)
        shuffle(settings)
        methods.append("".join([name, *settings]))
    shuffle(methods)
    return head + "".join(methods) + tail


@pytest.mark.parametrize("name", sorted(path.stem for path in packaged_folder().glob("*.yaml")))
def test_hook_table_is_the_golden_one(name):
    table = "".join(
        f"{hook:<16} {', '.join(methods)}\n"
        for hook, methods in planned(name).as_dict()["hooks"].items()
    )
    assert table == (Path(__file__).parent / "golden" / f"{name}.txt").read_text()


def test_order_of_keys_in_a_recipe_has_no_meaning(tmp_path):
    text, expected = (packaged_folder() / "hot.yaml").read_text(), planned("hot")
    shuffled = {with_methods_in_another_order(text, seed) for seed in range(10)}
    assert len(shuffled | {text}) == 11
    for number, other in enumerate(shuffled):
        assert sorted(other.splitlines()) == sorted(text.splitlines())
        path = tmp_path / f"{number}.yaml"
        path.write_text(other)
        made = planned(str(path))
        assert made.recipe == expected.recipe
        assert made.as_dict() == expected.as_dict()
        assert list(outline.rows(made)) == list(outline.rows(expected))
