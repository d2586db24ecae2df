"""The packaged recipes as a config group of any Hydra application.

The application adds `resnet_recipes/recipe@recipe: hot` to its defaults.

Hydra searches hydra_plugins for classes like these. The strict YAML reader also reads these
recipes.
"""

from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.library import GROUPS, Library, find_packaged_folder

GROUP = "resnet_recipes/recipe"  # prefix of the option groups


class RecipeSource(ConfigSource):
    """Every packaged recipe and option, with all its settings, including defaults."""

    @staticmethod
    def scheme() -> str:
        return "resnet-recipes"

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path in _TREE

    def is_config(self, config_path: str) -> bool:
        return _find_file(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        groups = _TREE.get(config_path, ())
        folder = find_packaged_folder() / config_path.removeprefix(GROUP).strip("/")
        configs = [path.stem for path in folder.glob("*.yaml")] if GROUP in config_path else ()
        return sorted(
            [
                *(groups if results_filter != ObjectType.CONFIG else ()),
                *(configs if results_filter != ObjectType.GROUP else ()),
            ]
        )

    def load_config(self, config_path: str) -> ConfigResult:
        file = _find_file(config_path)
        if file is None:
            raise ConfigLoadError(f"no such recipe or option: {config_path}")
        # These import torch, which an application that only lists its options does not need.
        from resnet_recipes.recipe.build import build_recipe, complete_section
        from resnet_recipes.recipe.frozen_recipe import to_tree

        if (group := file.parent.name) in GROUPS:
            tree = complete_section(group, strict_yaml.load(file).tree)
        else:
            links = Library(find_packaged_folder()).read_chain(file.stem)
            merged = OmegaConf.merge(*(link.document.tree for link in links))
            tree = to_tree(build_recipe(OmegaConf.to_container(merged))[0])
        return ConfigResult(
            self.provider, self.full_path(), OmegaConf.create(tree), {"package": None}
        )


class RecipeSearchPath(SearchPathPlugin):
    """Adds the recipes after an application's configs, which take precedence."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("resnet-recipes", f"{RecipeSource.scheme()}://")


#: The groups, and the groups inside each.
_TREE = {
    "": ("resnet_recipes",),
    "resnet_recipes": ("recipe",),
    GROUP: GROUPS,
    **{f"{GROUP}/{group}": () for group in GROUPS},
}


def _find_file(config_path: str) -> Path | None:
    """Return the file of a recipe or an option, or None."""
    group, _, name = config_path.removesuffix(".yaml").rpartition("/")
    file = find_packaged_folder() / group.removeprefix(GROUP).strip("/") / f"{name}.yaml"
    return file if group.startswith(GROUP) and group in _TREE and file.is_file() else None
