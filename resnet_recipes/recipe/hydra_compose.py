"""Use Hydra for three things: its override grammar, its sweeps, and its defaults lists.

Hydra reads no recipe file: a config source passes it the trees of the strict reader. Recipes that
inherit only from recipes are merged here, in a hundredth of the time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice, product
from typing import Any, ClassVar

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    Override,
    QuotedString,
    RangeSweep,
    Transformer,
    ValueType,
)
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from resnet_recipes.base.errors import BrokenRuleError, Hint, Problem, RecipeError
from resnet_recipes.base.names import DOCS, get_full_name
from resnet_recipes.base.text import get_first_line
from resnet_recipes.recipe import frozen_recipe
from resnet_recipes.recipe.build import get_setting_type
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.strict_yaml import GROUPS

_APP = "resnet_recipes"  # group of all configs
_FILES = f"{_APP}/files"  # group of recipes, with a group per kind of option

#: The epochs of the trade-off curves in the papers: `epochs=curve`.
CURVE = "22.5,30,54,60,72,90"

MAX_SWEEP_POINTS = 1000

#: A hint for Hydra plug-ins, and for sweeps whose values a plug-in chooses.
OWN_APPLICATION = Hint(f"your own Hydra application takes it: {DOCS}/howto/hydra.html")

SWEEP = Hint("resnet-train -m trains several values")

#: Hydra 1.3 warns without a version base, and 1.4 with one.
_VERSION_BASE = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}


def is_unlisted(value: str) -> bool:
    """Return whether a value is a sweep without a list of values, such as interval(0,1)."""
    return value.startswith(("interval(", "glob("))


@lru_cache(1024)  # the runs of a sweep have most arguments in common
def _parse_override(override: str) -> Override:
    return OverridesParser.create().parse_override(override)


def read_value(override: str) -> Any:
    """Return the value of an override such as "seed=7".

    Raises BrokenRuleError if Hydra cannot parse it as one value.
    """
    try:
        parsed = _parse_override(override)
        several = parsed.is_sweep_override()
    except (HydraException, ValueError, RecursionError):
        raise BrokenRuleError("cannot be read") from None
    if several:
        raise BrokenRuleError("must be one value", SWEEP)
    return parsed.value()


def list_points(arguments: Sequence[str]) -> list[list[str]]:
    """Return the arguments of each run of a sweep; the last argument changes fastest.

    Raises RecipeError for a sweep whose values cannot be listed, and for too many runs.
    """
    choices, problems, count = [], [], 1
    for argument in arguments:
        try:
            choices.append(_list_choices(argument))
            count *= len(choices[-1])
        except BrokenRuleError as error:
            fix = Hint("as in seed=1,2,3 or seed=range(1,4)")
            fix = OWN_APPLICATION if is_unlisted(argument.partition("=")[2]) else fix
            problems.append(Problem(argument, None, error.clause, fix))
    if count > MAX_SWEEP_POINTS:
        clause = f"would start at least {count:,} runs; the maximum is {MAX_SWEEP_POINTS:,}"
        problems.append(Problem("-m", None, clause))
    RecipeError.raise_if_any(problems)
    return [list(point) for point in product(*choices)]


def _list_choices(argument: str) -> list[str]:
    key, equals, value = argument.partition("=")
    if argument.startswith("~") and not equals:  # ~methods.sam,ema: once without each
        section, dot, names = argument.rpartition(".")
        return [f"{section}{dot}{name}" for name in names.split(",")]
    if not equals or not (key == "recipe" or get_setting_type(get_full_name(key))):
        return [argument]
    value = CURVE if (key, value) == ("epochs", "curve") else value
    return [f"{key}={text}" for text in _list_texts(f"{key}={value}")] or [argument]


def _list_texts(override: str) -> list[str]:
    """Return the values of a sweep such as "seed=1,2,3", the first if too many; else nothing."""
    max_texts = MAX_SWEEP_POINTS + 1
    try:
        parsed = _parse_override(override)
    except (HydraException, ValueError, RecursionError):
        return []  # such as data=/a=b, whose value is read literally
    if not parsed.is_sweep_override():
        return []
    if parsed.value_type not in (
        ValueType.CHOICE_SWEEP,
        ValueType.SIMPLE_CHOICE_SWEEP,
        ValueType.RANGE_SWEEP,
    ):
        raise BrokenRuleError("an interval or a pattern has no list of values to run")
    try:
        values = parsed.value()
        # Hydra would list all numbers of a range before it shuffles them: count them first.
        if (
            isinstance(values, RangeSweep)
            and len(numbers := list(islice(values.range(), max_texts))) == max_texts
        ):
            return list(map(str, numbers))
        return list(islice(parsed.sweep_iterator(transformer=_format_text), max_texts))
    except (HydraException, ArithmeticError, ValueError):
        raise BrokenRuleError(
            "must be a range of finite numbers with a step other than 0"
        ) from None


def _format_text(value: Any) -> str:
    """Return a value of a sweep as an argument; text is quoted only if necessary."""
    if isinstance(value, QuotedString):
        return value.text
    return value if isinstance(value, str) else Transformer.str(value)


def choose_option(group: str, file: str) -> str:
    """Return the Hydra override that selects the file "optimizer/NAME" for a group."""
    return f"{_FILES}/{group}@{group}={file.removeprefix(f'{group}/')}"


def compose_tree(
    recipe: str,
    files: Mapping[str, Mapping[str, Any]],
    choices: Sequence[str] = (),
    changes: Sequence[str] = (),
) -> dict[str, Any]:
    """Merge one of several files, options and changes over the defaults of all settings.

    A change has the form "++seed=1"; the last one wins. A file may name others in its `defaults`;
    options are called "optimizer/NAME". References are resolved. Raises ValueError if files
    conflict.
    """
    try:
        text = _compose_files(recipe, json.dumps(files), tuple(choices))
        tree = json.loads(text)
        for change in map(_parse_override, changes):
            tree = _merge_trees(tree, nest(change.key_or_group, change.value()))
        return resolve_references(tree) if "${" in text else tree
    except (HydraException, OmegaConfBaseException, RecursionError) as error:
        raise ValueError(get_first_line(error)) from None


@lru_cache(64)  # the runs of a sweep mostly differ in settings
def _compose_files(recipe: str, files: str, choices: tuple[str, ...]) -> str:
    """Return `recipe`, one of the `files`, merged over the defaults, as JSON.

    `files` is JSON, so that the result can be cached. Calls Hydra only if plain merging does not
    suffice.
    """
    base = frozen_recipe.to_tree(Recipe()) | {"optimizer": {}}  # defaults of optimizers differ
    read = json.loads(files)
    family = list[str]()
    is_plain = not choices and "${" not in files and _collect_family(recipe, read, family)
    above = (
        [read[name] for name in family]
        if is_plain
        else [_compose_with_hydra(recipe, read, choices)]
    )
    for tree in above:
        base = _merge_trees(base, {key: tree[key] for key in tree if key != "defaults"})
    return json.dumps(base)


def _collect_family(recipe: str, files: Mapping[str, Mapping[str, Any]], family: list[str]) -> bool:
    """Append a recipe and its parents to `family`, the base first; False if Hydra must decide."""
    *parents, _ = files[recipe].get("defaults", ["_self_"])
    for name in parents:
        is_option = "/" in name
        if is_option or name not in files or not _collect_family(name, files, family):
            return False
    if recipe in family:
        return False
    family.append(recipe)
    return True


def _compose_with_hydra(recipe: str, files: dict[str, Any], choices: Sequence[str]) -> Any:
    """Return the tree that Hydra composes from a file, its parents, and choices."""
    defaults = [{f"/{_FILES}@_global_": recipe}]
    defaults += [{f"/{_FILES}/{group}@{group}": None} for group in GROUPS]
    configs = {f"{_FILES}/{name}": tree for name, tree in files.items()}
    configs[f"{_APP}/all"] = {"defaults": [*defaults, "_self_"]}
    search = f"hydra.searchpath=[{_ReadFiles.scheme()}://]"
    with _initialize_hydra(configs):
        config = hydra.compose(overrides=[search, f"+{_APP}@_global_=all", *choices])
    return OmegaConf.to_container(config)


def nest(key: str, value: Any) -> dict[str, Any]:
    """Return a nested tree with one value, whose key is dotted: `optimizer.lr`."""
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def _merge_trees(below: Any, above: Any) -> Any:
    """Merge two mappings as Hydra does; for other values, return the upper value."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {name: _merge_trees(below.get(name), value) for name, value in above.items()}


def resolve_references(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node of a Hydra config as plain values with references resolved.

    Raises ValueError for a broken reference or a missing value.
    """
    config = config if OmegaConf.is_config(config) else OmegaConf.create(config)
    try:
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ValueError(get_first_line(error)) from None


class _ReadFiles(ConfigSource):
    """Serves the trees of the strict reader as Hydra configs."""

    # configs by name in the Hydra config tree
    served: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @staticmethod
    def scheme() -> str:
        return "resnet-recipes-read"

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return any(name.startswith(f"{config_path}/") for name in self.served)

    def is_config(self, config_path: str) -> bool:
        return config_path.removesuffix(".yaml") in self.served

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        names = (name.rpartition("/") for name in self.served)
        return sorted(name for group, _, name in names if group == config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        tree = OmegaConf.create(dict(self.served[config_path.removesuffix(".yaml")]))
        return ConfigResult(self.provider, self.full_path(), tree, {"package": None})


@contextmanager
def _initialize_hydra(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Initialize Hydra with these configs, and restore the state of a notebook afterwards."""
    previous = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    Plugins.instance().register(_ReadFiles)
    _ReadFiles.served = configs
    try:
        # Hydra requires a module; this one contains no configs
        with hydra.initialize_config_module("resnet_recipes", **_VERSION_BASE):
            yield
    finally:
        _ReadFiles.served = {}
        if previous:
            GlobalHydra.instance().initialize(previous)
