"""The recipe in a run folder: read back equal, or rejected after a wrong edit."""

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.frozen_recipe import freeze, read


@pytest.mark.parametrize("name", ["mild", "medium", "hot", "demo"])
def test_frozen_recipe_reads_back_equal(name, tmp_path):
    recipe = compose(name, ["data=/odd path/it's #1: e", "lr=1e-7", "run=0123"]).recipe
    (tmp_path / "config.yaml").write_text(freeze(recipe), encoding="utf-8")
    assert read(tmp_path / "config.yaml") == recipe


@pytest.mark.parametrize(
    "run", ["0918", "08", "n", "y", "NO", "1e5", "3e12", "0o7", "0x1f", "0_8", "true", "7", "1.5"]
)
def test_name_like_a_number_or_switch_stays_text(run, tmp_path):
    recipe = compose("mild", ["data=/data", f"run={run}"]).recipe
    (tmp_path / "config.yaml").write_text(freeze(recipe))
    assert recipe.run.name == run
    assert read(tmp_path / "config.yaml") == recipe


def test_freeze_omits_methods_that_are_off():
    recipe = compose("hot", ["data=/data"]).recipe
    assert "mixup:\n    alpha: 0.25\n" in freeze(recipe)
    assert "cutmix" not in freeze(recipe)  # it is off


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("momentum: 7", r"config\.yaml: optimizer\.momentum=7"),
        ("old: []", r"config\.yaml: unknown setting optimizer\.old\n.*prints every setting"),
    ],
)
def test_frozen_recipe_is_validated(settings, message, tmp_path):
    recipe = compose("mild", ["data=/data"]).recipe
    path = tmp_path / "config.yaml"
    path.write_text(freeze(recipe).replace("momentum: 0.875", settings))
    with pytest.raises(RecipeError, match=message):
        read(path)
