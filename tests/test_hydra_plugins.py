"""The packaged recipes as a config group.

`tools/wheel_check.sh` runs an application that uses them.
"""

import hydra
import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.errors import MissingConfigException
from omegaconf import OmegaConf

from hydra_plugins.resnet_recipes import RecipeSearchPath, RecipeSource
from resnet_recipes.recipe.compose import compose, from_config
from resnet_recipes.recipe.library import GROUPS, find_packaged_folder

SOURCE = RecipeSource("resnet-recipes", "resnet-recipes://")


def compose_application(*arguments: str, recipe: str = "hot") -> dict:
    for plugin in (RecipeSource, RecipeSearchPath):
        Plugins.instance().register(plugin)
    defaults = [{"resnet_recipes/recipe@recipe": recipe}, "_self_"]
    content = {"defaults": defaults, "side": "${recipe.data.train_size}", "recipe": {"seed": 5}}
    ConfigStore.instance().store("application", content)
    with hydra.initialize_config_module("resnet_recipes", version_base="1.3"):
        return OmegaConf.to_container(hydra.compose("application", list(arguments)), resolve=True)


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in find_packaged_folder().glob("*.yaml"))
)
def test_hydra_option_of_recipe_equals_composed_recipe(name):
    assert SOURCE.is_config(f"resnet_recipes/recipe/{name}")
    config = SOURCE.load_config(f"resnet_recipes/recipe/{name}").config
    assert from_config(config) == compose(name, needs_data=False).recipe


def test_application_overrides_recipe_in_hydra_syntax():
    tree = compose_application("recipe.optimizer.lr=1", "resnet_recipes/recipe@recipe=mild")
    assert (tree["side"], tree["recipe"]["name"], tree["recipe"]["seed"]) == (176, "mild", 5)
    assert tree["recipe"]["optimizer"]["lr"] == 1
    assert tree["recipe"]["data"]["root"] == ""


@pytest.mark.parametrize("group", GROUPS)
def test_option_replaces_section_as_in_our_command(group):
    for path in sorted((find_packaged_folder() / group).glob("*.yaml"))[::2]:
        tree = compose_application(f"+resnet_recipes/recipe/{group}@recipe.{group}={path.stem}")
        ours = compose("hot", [f"{group}={path.stem}", "seed=5"], needs_data=False).recipe
        assert from_config(tree["recipe"]) == ours


def test_unknown_option_lists_valid_options():
    with pytest.raises(MissingConfigException, match="mild"):
        compose_application(recipe="mil")


def test_hydra_source_lists_groups_and_recipes():
    assert SOURCE.list("", None) == ["resnet_recipes"]
    assert SOURCE.list("resnet_recipes", ObjectType.GROUP) == ["recipe"]
    assert SOURCE.list("resnet_recipes", ObjectType.CONFIG) == []
    assert SOURCE.list("resnet_recipes/recipe", ObjectType.GROUP) == sorted(GROUPS)
    assert {"hot", "mild"} < set(SOURCE.list("resnet_recipes/recipe", ObjectType.CONFIG))
    assert "lamb" in SOURCE.list("resnet_recipes/recipe/optimizer", None)


@pytest.mark.parametrize(
    "path",
    ["hot", "resnet_recipes", "resnet_recipes/recipe/../recipe/hot", "resnet_recipes/recipe/x/hot"],
)
def test_hydra_source_has_no_config_at_other_paths(path):
    assert not SOURCE.is_config(path)
