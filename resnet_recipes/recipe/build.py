"""Build the typed sections of a recipe from nested mappings, and list every problem."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple, get_args, get_origin

from resnet_recipes.base.errors import Change, Hint, Problem, RecipeError, Statement
from resnet_recipes.base.field_types import (
    describe_type,
    find_dataclasses,
    get_field_types,
    to_plain,
)
from resnet_recipes.base.suggestions import find_closest
from resnet_recipes.recipe.schema import Recipe

#: Levels of nesting in a recipe: sections, methods, their settings, lists, and one more.
_MAX_RECIPE_DEPTH = 5


class BuildResult(NamedTuple):
    """A recipe, and everything wrong with the mappings that it was built from."""

    recipe: Recipe
    problems: list[Problem]


def is_plain_recipe(value: object, depth: int = _MAX_RECIPE_DEPTH) -> bool:
    """Return whether a value is text, numbers, lists and mappings of at most `depth` levels."""
    if isinstance(value, dict):
        return depth > 0 and all(
            type(key) is str and is_plain_recipe(item, depth - 1) for key, item in value.items()
        )
    if isinstance(value, list | tuple):
        return depth > 0 and all(is_plain_recipe(item, depth - 1) for item in value)
    return value is None or type(value) in (str, int, float, bool)


def fit_sections(tree: dict[str, Any], problems: list[Problem], prefix: str = "") -> dict[str, Any]:
    """Return the tree without values that should be sections, and sections that should be values.

    Each of these is added to `problems`. `build_recipe` checks the types of values.
    """
    fits = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        field_type = get_setting_type(key)
        sections = find_dataclasses(field_type)
        if (
            sections
            and not isinstance(value, dict)
            and not (value is None and type(None) in get_args(field_type))
        ):
            clause = Statement(f"{key} is a section of settings")
            names = ", ".join(get_field_types(sections[0]))
            fix = Hint(f"its settings: {names}; {{}} for their defaults" if names else "write {}")
            problems.append(Problem(key, value, clause, fix))
        elif (
            field_type
            and not sections
            and get_origin(field_type) is not dict
            and isinstance(value, dict)
        ):
            problems.append(Problem(key, value, f"must be {describe_type(field_type)}"))
        elif isinstance(value, dict):
            fits[name] = fit_sections(value, problems, f"{key}.")
        else:
            fits[name] = value
    return fits


def complete_section(section: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a section, completed with the defaults of all other settings.

    The settings of other optimizers are null, so that the result replaces the complete section.
    """
    options = find_dataclasses(get_setting_types()[section])
    choice = next((option for option in options if option.name == values.get("name")), options[0])
    unset = {name: None for option in options for name in get_field_types(option)}
    return unset | to_plain(asdict(choice())) | values


def build_recipe(tree: dict[str, Any]) -> BuildResult:
    """Build a recipe; check the names and types in the tree, and the rules of the recipe."""
    problems: list[Problem] = []
    recipe = build(Recipe, tree, "", problems)
    wrong = {problem.key for problem in problems}  # the recipe has defaults for these
    rules = [problem for problem in recipe.problems() if problem.key not in wrong]
    return BuildResult(recipe, problems + rules)


@cache
def get_setting_types() -> dict[str, Any]:
    """Return the type of every setting by its full name, including sections and methods."""
    types: dict[str, Any] = {}

    def visit(cls: type, prefix: str) -> None:
        for name, field_type in get_field_types(cls).items():
            types[prefix + name] = field_type
            for section in find_dataclasses(field_type):
                visit(section, f"{prefix}{name}.")

    visit(Recipe, "")
    return types


def get_setting_type(key: str) -> Any:
    """Return the type of a setting by its full name, or None.

    A mapping with free names, such as `model.args`, has settings of any name.
    """
    parent = get_setting_types().get(key.rpartition(".")[0])
    return get_args(parent)[1] if get_origin(parent) is dict else get_setting_types().get(key)


def find_owners(key: str) -> list[Any]:
    """Return the sections that have a setting; several optimizers may have the same setting."""
    section, _, name = key.rpartition(".")
    options = find_dataclasses(get_setting_type(section))
    return [owner for owner in options if name in get_field_types(owner)]


def build(cls: type, tree: dict[str, Any], prefix: str, problems: list[Problem]) -> Any:
    """Build one section; unknown names and values of the wrong type are problems."""
    result = cls()
    field_types = get_field_types(cls)
    problems += _find_name_problems(tree, prefix, field_types)
    for name, field_type in field_types.items():
        if name not in tree:
            continue
        key = prefix + name
        value = tree[name]
        sections = find_dataclasses(field_type)
        if sections and isinstance(value, dict):
            section, inside = _choose_section(sections, value, key, problems)
            value = build(section, inside, f"{key}.", problems)
        try:
            setattr(result, name, value)
        except RecipeError as error:
            problems += error.problems
    return result


def _find_name_problems(
    tree: dict[str, Any], prefix: str, valid: Iterable[str] = ()
) -> Iterator[Problem]:
    """Yield a problem for each name that is not valid, and for each name in an unknown section."""
    for name in [key for key in tree if key not in valid]:
        key = f"{prefix}{name}"
        value = tree[name]
        likely_name = find_closest(key, get_setting_types())
        is_known = get_setting_type(prefix[:-1])
        if isinstance(value, dict) and value and not is_known and (prefix or not likely_name):
            yield from _find_name_problems(value, f"{key}.")
        else:
            yield Problem.unknown_setting(key, value, likely_name, typed=key)


def _choose_section(
    sections: list[type], tree: dict[str, Any], key: str, problems: list[Problem]
) -> tuple[type, dict[str, Any]]:
    """Return the section that `name` in the tree selects, or the only section, and its settings.

    A setting of another section, such as `momentum` next to `name: lamb`, is a problem unless it is
    null.
    """
    if len(sections) == 1:
        return sections[0], tree
    names = {section.name: section for section in sections}
    name = tree.get("name", sections[0].name)
    likely_name = ""
    if not isinstance(name, str) or name not in names:
        likely_name = find_closest(str(name), names)
        fix = likely_name and Change(f"{key}={likely_name}")
        problems.append(Problem(f"{key}.name", name, "", fix, tuple(names)))
        if not likely_name:
            return sections[0], {}
        name = likely_name
        tree = tree | {"name": likely_name}
    field_types = get_field_types(names[name])
    settings = {}
    for setting, value in tree.items():
        readers = [option for option in names if setting in get_field_types(names[option])]
        if setting in field_types or not readers:
            settings[setting] = value
        elif value is not None and not likely_name:
            clause = f"is not a setting of {name}"
            fix = Hint(f"{setting} is a setting of {', '.join(readers)}; null removes it")
            problems.append(Problem(f"{key}.{setting}", value, clause, fix))
    return names[name], settings
