"""What Hydra does: words in its grammar, sweeps too, and recipes, options and words as one tree.

Hydra reads no recipe file. What it composes are the trees that the strict reader made of them,
which it finds in a config source of our own. Recipes that inherit from recipes alone are merged
here, in a hundredth of Hydra's time.
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

from resnet_recipes.base.errors import Hint, Problem, RecipeError
from resnet_recipes.base.names import DOCS
from resnet_recipes.recipe import frozen
from resnet_recipes.recipe.library import GROUPS
from resnet_recipes.recipe.schema import Recipe

_APP = "resnet_recipes"  # the group of all our configs
_FILES = f"{_APP}/files"  # that of the recipes that were read, and of options below it

#: The budgets of the papers' trade-off curves, in epochs: `epochs=curve`.
CURVE = "22.5,30,54,60,72,90"

MAX_POINTS = 1000

#: What takes Hydra's own plug-ins, and sweeps whose values they choose.
OWN_APPLICATION = Hint(f"your own Hydra application takes it: {DOCS}/howto/hydra.html")

#: Hydra 1.3 warns if it is not told its version, and 1.4 if it is.
_VERSION = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}


class UnlistedError(ValueError):
    """A sweep without a list of values: only a sweeper of Hydra's can choose them."""


@lru_cache(1024)  # the points of a sweep have most words in common
def _parsed(override: str) -> Override:
    return OverridesParser.create().parse_override(override)


def value_of(override: str) -> Any:
    """Return the value of an override such as "seed=7".

    Raises ValueError if Hydra cannot read it as one value.
    """
    try:
        parsed = _parsed(override)
        several = parsed.is_sweep_override()
    except (HydraException, ValueError, RecursionError):
        raise ValueError("cannot be read") from None
    if several:
        raise ValueError("must be one value")
    return parsed.value()


def points(words: Sequence[str]) -> list[list[str]]:
    """Return the words of each run, the last sweep changing fastest.

    Raises RecipeError if one cannot be listed.
    """
    choices, problems, count = [], [], 1
    for word in words:
        try:
            choices.append(_choices(word))
            count *= len(choices[-1])
        except ValueError as error:
            is_unlisted = isinstance(error, UnlistedError)
            fix = OWN_APPLICATION if is_unlisted else Hint("as in seed=1,2,3 or seed=range(1,4)")
            problems.append(Problem(word, None, str(error), fix))
    if count > MAX_POINTS:
        problems.append(
            Problem(
                "-m", None, f"would start at least {count:,} runs; the maximum is {MAX_POINTS:,}"
            )
        )
    RecipeError.refuse(problems)
    return [list(point) for point in product(*choices)]


def _choices(word: str) -> list[str]:
    """Return the words that one word stands for.

    Itself, unless it holds several values in Hydra's grammar.
    """
    key, equals, value = word.partition("=")
    if word.startswith("~") and not equals:  # ~methods.sam,ema: without the one, without the other
        section, dot, names = word.rpartition(".")
        return [f"{section}{dot}{name}" for name in names.split(",")]
    if not equals:
        return [word]
    value = CURVE if (key, value) == ("epochs", "curve") else value
    return [f"{key}={text}" for text in _texts_of(f"{key}={value}", MAX_POINTS + 1)] or [word]


def _texts_of(override: str, most: int) -> list[str]:
    """Return the values of a sweep such as "seed=1,2,3" or "seed=range(1,4)", at most `most`.

    Empty if not a sweep.

    Raises ValueError for a sweep without a list of values.
    """
    try:
        parsed = _parsed(override)
    except (HydraException, ValueError, RecursionError):
        return []  # such as data=/a=b: the value is read literally
    if not parsed.is_sweep_override():
        return []
    if parsed.value_type not in (
        ValueType.CHOICE_SWEEP,
        ValueType.SIMPLE_CHOICE_SWEEP,
        ValueType.RANGE_SWEEP,
    ):
        raise UnlistedError("an interval or a pattern has no list of values to run")
    try:
        swept = parsed.value()
        # Hydra shuffles a list of all numbers of a range: count them first.
        if (
            isinstance(swept, RangeSweep)
            and len(found := list(islice(swept.range(), most))) == most
        ):
            return list(map(str, found))
        return list(islice(parsed.sweep_iterator(transformer=_text), most))
    except (HydraException, ArithmeticError, ValueError):
        raise ValueError("must be a range of finite numbers with a step other than 0") from None


def _text(value: Any) -> str:
    """Return one value of a sweep as it is typed alone: only there does text need escapes."""
    if isinstance(value, QuotedString):
        return value.text
    return value if isinstance(value, str) else Transformer.str(value)


def choice(group: str, file: str) -> str:
    """Return the override with which Hydra chooses an option of a group.

    The file "optimizer/NAME".
    """
    return f"{_FILES}/{group}@{group}={file.removeprefix(f'{group}/')}"


def composed(
    recipe: str,
    files: Mapping[str, Mapping[str, Any]],
    choices: Sequence[str] = (),
    changes: Sequence[str] = (),
) -> dict[str, Any]:
    """Compose one of several files over the defaults of all settings.

    Options of groups are chosen, then settings changed, each as "++seed=1"; the last one wins. A
    file may name others in its `defaults`; options are called "optimizer/NAME". References are
    resolved. Raises ValueError if the files do not fit together.
    """
    try:
        text = _chosen(recipe, json.dumps(files), tuple(choices))
        tree = json.loads(text)
        for change in map(_parsed, changes):
            tree = _over(tree, nested(change.key_or_group, change.value()))
        return plain(tree) if "${" in text else tree
    except (HydraException, OmegaConfBaseException, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())[:200]) from None


@lru_cache(64)  # the points of a sweep mostly differ in settings
def _chosen(recipe: str, files: str, choices: tuple[str, ...]) -> str:
    """Return one of the files over the defaults, as Hydra composes it; these trees are JSON."""
    base = frozen.tree_of(Recipe()) | {"optimizer": {}}  # defaults of optimizers differ
    read = json.loads(files)
    family = list[str]()
    is_plain = not choices and "${" not in files and _collect(recipe, read, family)
    above = [read[name] for name in family] if is_plain else [_by_hydra(recipe, read, choices)]
    for tree in above:
        base = _over(base, {key: tree[key] for key in tree if key != "defaults"})
    return json.dumps(base)


def _collect(recipe: str, files: Mapping[str, Mapping[str, Any]], family: list[str]) -> bool:
    """Append a recipe and those that it inherits from to `family`, the most basic one first.

    Returns False for what Hydra must decide: an option, a recipe that is not there, or one that is
    inherited twice, whose place depends on both.
    """
    *parents, _ = files[recipe].get("defaults", ["_self_"])
    for name in parents:
        is_option = "/" in name
        if is_option or name not in files or not _collect(name, files, family):
            return False
    if recipe in family:
        return False
    family.append(recipe)
    return True


def _by_hydra(recipe: str, files: dict[str, Any], choices: Sequence[str]) -> Any:
    """Return the tree that Hydra composes of a file, those that it names, and choices."""
    defaults = [{f"/{_FILES}@_global_": recipe}]
    defaults += [{f"/{_FILES}/{group}@{group}": None} for group in GROUPS]
    configs = {f"{_FILES}/{name}": tree for name, tree in files.items()}
    configs[f"{_APP}/all"] = {"defaults": [*defaults, "_self_"]}
    search = f"hydra.searchpath=[{_ReadFiles.scheme()}://]"
    with _own_hydra(configs):
        config = hydra.compose(overrides=[search, f"+{_APP}@_global_=all", *choices])
    return OmegaConf.to_container(config)


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return the tree in which one key, `optimizer.lr`, has a value."""
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


def _over(below: Any, above: Any) -> Any:
    """Return what Hydra makes of two values: mappings are merged, else the upper one wins."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {name: _over(below.get(name), value) for name, value in above.items()}


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node of a Hydra application's config as plain values, references resolved.

    Raises ValueError if a reference leads nowhere, or if a value is missing.
    """
    config = config if OmegaConf.is_config(config) else OmegaConf.create(config)
    try:
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ValueError(" ".join(str(error).split())[:200]) from None


class _ReadFiles(ConfigSource):
    """What the strict reader has read, where Hydra looks for configs."""

    served: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # by their names among Hydra's configs

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
def _own_hydra(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Initialize Hydra over our configs; what a notebook has initialized is back afterwards."""
    theirs = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    Plugins.instance().register(_ReadFiles)
    _ReadFiles.served = configs
    try:
        with hydra.initialize_config_module("resnet_recipes", **_VERSION):  # has no configs
            yield
    finally:
        _ReadFiles.served = {}
        if theirs:
            GlobalHydra.instance().initialize(theirs)
