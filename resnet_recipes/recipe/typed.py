"""A plain recipe of nested mappings as typed sections, with every problem of it."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from typing import Any, get_args, get_origin

from resnet_recipes.base.errors import NO_SETTING, Problem, RecipeError
from resnet_recipes.base.kinds import dataclasses_in, kinds_of, words
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.suggestions import closest, did_you_mean


def fitting(tree: dict[str, Any], prefix: str = "") -> tuple[dict[str, Any], list[Problem]]:
    """Return the tree without values in place of sections, or sections in place of values.

    Each of them is a problem. Types of values are checked later, by `typed`.
    """
    fits, problems = {}, []
    for name, value in tree.items():
        key = f"{prefix}{name}"
        kind = kind_of(key)
        sections = dataclasses_in(kind)
        if (
            sections
            and not isinstance(value, dict)
            and not (value is None and type(None) in get_args(kind))
        ):
            rule = "must be a mapping of its settings"
            problems.append(Problem(key, value, rule, _settings_of(sections[0])))
        elif kind and not sections and get_origin(kind) is not dict and isinstance(value, dict):
            problems.append(Problem(key, value, f"must be {words(kind)}"))
        elif isinstance(value, dict):
            fits[name], wrong = fitting(value, f"{key}.")
            problems += wrong
        else:
            fits[name] = value
    return fits, problems


def whole(section: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return every setting of a section: those that were chosen, and the defaults of the others.

    Settings of an optimizer that was not chosen are null, so that what is merged into a section
    replaces all of it.
    """
    options = dataclasses_in(settings()[section])
    own = next((option for option in options if option.name == chosen.get("name")), options[0])
    others = {name: None for option in options for name in kinds_of(option)}
    return others | plain(asdict(own())) | chosen


def typed(tree: dict[str, Any]) -> tuple[Recipe, list[Problem]]:
    """Return a recipe and everything wrong with the tree: names, types, and its own rules."""
    problems = list(unknown(tree))
    mistyped: list[Problem] = []
    recipe = build(Recipe, tree, "", mistyped)
    wrong = tuple(problem.key for problem in mistyped)  # the recipe has defaults for these
    return recipe, problems + mistyped + [
        problem for problem in recipe.problems() if problem.key not in wrong
    ]


def unknown(tree: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each unknown setting or section; not for those inside of the latter."""
    known = settings()
    for key in _keys(tree, ""):
        parent = key.rpartition(".")[0]
        if kind_of(key) is None and (not parent or dataclasses_in(known.get(parent))):
            yield Problem(key, None, NO_SETTING, did_you_mean(key, known))


@cache
def settings() -> dict[str, Any]:
    """Return the type of every setting by its full name, sections and methods included."""
    found: dict[str, Any] = {}

    def visit(cls: type, prefix: str) -> None:
        for name, kind in kinds_of(cls).items():
            found[prefix + name] = kind
            for section in dataclasses_in(kind):
                visit(section, f"{prefix}{name}.")

    visit(Recipe, "")
    return found


def kind_of(key: str) -> Any:
    """Return the type of a setting by its full name, or None.

    A mapping of names that others choose, such as `model.args`, has settings of any name.
    """
    parent = settings().get(key.rpartition(".")[0])
    return get_args(parent)[1] if get_origin(parent) is dict else settings().get(key)


def build(cls: type, tree: dict[str, Any], prefix: str, problems: list[Problem]) -> Any:
    """Build one section; a value that does not fit is a problem, and the default stays."""
    made = cls()
    for name, kind in kinds_of(cls).items():
        if name not in tree:
            continue
        key, value, sections = prefix + name, tree[name], dataclasses_in(kind)
        if sections and isinstance(value, dict):
            section, inside = _chosen(sections, value, key, problems)
            value = build(section, inside, f"{key}.", problems)
        try:
            setattr(made, name, value)
        except RecipeError as error:
            problems += error.problems
    return made


def _chosen(
    sections: list[type], tree: dict[str, Any], key: str, problems: list[Problem]
) -> tuple[type, dict[str, Any]]:
    """Return the section that `name` in the tree chooses, or the only one, and its settings.

    A setting of another section, such as `momentum` next to `name: lamb`, is a problem unless it is
    null.
    """
    names = {section.name: section for section in sections} if len(sections) > 1 else {}
    if not names:
        return sections[0], tree
    name = tree.get("name", sections[0].name)
    if not isinstance(name, str) or name not in names:
        rule, meant = f"must be one of {', '.join(names)}", closest(str(name), names)
        fix = f"{key}={meant}" if meant else ""
        problems.append(Problem(f"{key}.name", name, rule, fix))
        return sections[0], {}
    own = kinds_of(names[name])
    strange = {
        setting for section in sections for setting in kinds_of(section)
    } & tree.keys() - own.keys()
    problems += [
        Problem(
            f"{key}.{setting}",
            tree[setting],
            f"is not a setting of {name}",
            f"{key}={name} chooses {name} with its own settings; {setting} is for "
            + ", ".join(other for other in names if setting in kinds_of(names[other])),
        )
        for setting in tree
        if setting in strange and tree[setting] is not None
    ]
    return names[name], {setting: value for setting, value in tree.items() if setting in own}


def _keys(tree: dict[str, Any], prefix: str) -> Iterator[str]:
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{name}.")


def _settings_of(section: type) -> str:
    names = ", ".join(kinds_of(section))
    return f"its settings: {names}" if names else "it has no settings; write {}"


def plain(value: Any) -> Any:
    """Return mappings and lists as YAML has them: without tuples."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
