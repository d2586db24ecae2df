"""Types for a plain recipe: from nested mappings to dataclasses, collecting every problem."""

import math
import types
from collections.abc import Iterator
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from resnet_recipes.base.duration import is_duration
from resnet_recipes.base.errors import Problem
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.suggestions import did_you_mean

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text, in quotes",
    type(None): "null",
}
_ON, _OFF = ("true", "on", "yes", "1"), ("false", "off", "no", "none", "0")


class _WrongTypeError(Exception):
    """A value does not fit; the message completes "must be ..."."""


def fitting(
    tree: dict[str, Any], in_file: bool, prefix: str = ""
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the tree without values in place of sections, or sections in place of values.

    Each of them is a problem. The fix is spelled as in a recipe file or as on the command line.
    Types of values are checked later, by `typed`.
    """
    fits, problems = {}, []
    for name, value in tree.items():
        key = f"{prefix}{name}"
        kind = settings().get(key)
        sections = _dataclasses_in(kind)
        if (
            sections
            and not isinstance(value, dict)
            and not (value is None and type(None) in get_args(kind))
        ):
            rule = "must be a mapping of its settings"
            problems.append(
                Problem(key, value, rule, _as_section(key, value, sections[0], in_file))
            )
        elif kind and not sections and isinstance(value, dict):
            problems.append(Problem(key, value, f"must be {_words(kind)}"))
        elif isinstance(value, dict):
            fits[name], wrong = fitting(value, in_file, f"{key}.")
            problems += wrong
        else:
            fits[name] = value
    return fits, problems


def whole(section: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return every setting of a section: those that were chosen, and the defaults of the others.

    Settings of an optimizer that was not chosen are null, so that what is merged into a section
    replaces all of it.
    """
    options = _dataclasses_in(settings()[section])
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
        if key not in known and (not parent or _dataclasses_in(known.get(parent))):
            yield Problem(key, None, "no such setting", did_you_mean(key, known))


@cache
def settings() -> dict[str, Any]:
    """Return the type of every setting by its full name, sections and methods included."""
    found: dict[str, Any] = {}

    def visit(cls: type, prefix: str) -> None:
        for name, kind in kinds_of(cls).items():
            found[prefix + name] = kind
            for section in _dataclasses_in(kind):
                visit(section, f"{prefix}{name}.")

    visit(Recipe, "")
    return found


@cache
def kinds_of(cls: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls)}


def build(cls: type, tree: dict[str, Any], prefix: str, problems: list[Problem]) -> Any:
    """Build one dataclass; a value that does not fit is a problem, and the default replaces it."""
    values = {}
    for name, kind in kinds_of(cls).items():
        if name not in tree:
            continue
        key, sections = prefix + name, _dataclasses_in(kind)
        if sections and isinstance(tree[name], dict):
            section, inside = _chosen(sections, tree[name], key, problems)
            values[name] = build(section, inside, f"{key}.", problems)
            continue
        try:
            values[name] = _convert(tree[name], kind)
        except _WrongTypeError as error:
            problems.append(
                Problem(key, tree[name], f"must be {error}", _fix(cls, name, tree[name], key))
            )
    return cls(**values)


def is_union(kind: Any) -> bool:
    """Return whether a type is a choice, such as `int | str`."""
    return get_origin(kind) in (Union, types.UnionType)


def _dataclasses_in(kind: Any) -> list[type]:
    return [
        option for option in (get_args(kind) if is_union(kind) else (kind,)) if is_dataclass(option)
    ]


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
        problems.append(Problem(f"{key}.name", name, f"must be one of {', '.join(names)}"))
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
            f"{key}={name} instead of {key}.name={name}, or ~{key}.{setting}",
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


def _as_section(key: str, value: Any, section: type, in_file: bool) -> str:
    """Return what was most likely meant by a plain value where a section belongs."""
    names, word = list(kinds_of(section)), str(value).lower()
    if key.startswith("methods."):
        if word in _ON or word in _OFF:
            off = f"{key.rpartition('.')[2]}: null" if in_file else f"~{key}"
            on = f"{key.rpartition('.')[2]}: {{}}" if in_file else f"{key}={{}}"
            return off if word in _OFF else on
        target = names[0] if len(names) == 1 else None
    else:
        target = "name" if "name" in names and isinstance(value, str) else None
    if target:
        return (
            f"{key.rpartition('.')[2]}: {{{target}: {value}}}"
            if in_file
            else f"{key}.{target}={value}"
        )
    return f"its settings: {', '.join(names)}" if names else "it has no settings; write {}"


def _fix(cls: type, name: str, value: Any, key: str) -> str:
    default = next(item.default for item in fields(cls) if item.name == name)
    if isinstance(default, str) and isinstance(value, int | float) and is_duration(default):
        return f"a length needs a unit: {key}={value}ep or {key}={value}ba"
    if (
        isinstance(value, str)
        and kinds_of(cls)[name] in (int, float)
        and value.replace(".", "", 1).isdigit()
    ):
        return f"write {value} without quotes"
    if default is MISSING or default is None:
        return ""
    return f"the default is {str(default).lower() if isinstance(default, bool) else default}"


def plain(value: Any) -> Any:
    """Return mappings and lists as YAML has them: without tuples."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _convert(value: Any, kind: Any) -> Any:
    """Return `value` as `kind`; text and numbers stay what they are. Raises _WrongTypeError."""
    if is_union(kind):
        for option in get_args(kind):
            try:
                return _convert(value, option)
            except _WrongTypeError:
                continue
        raise _WrongTypeError(_words(kind))
    if get_origin(kind) is list:
        return [_convert(item, get_args(kind)[0]) for item in _items(value, kind)]
    if get_origin(kind) is tuple:
        items = _items(value, kind)
        if len(items) != len(get_args(kind)):
            raise _WrongTypeError(f"a list of {len(get_args(kind))} values")
        return tuple(
            _convert(item, option) for item, option in zip(items, get_args(kind), strict=True)
        )
    if is_dataclass(kind):
        return _record(value, kind)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(value)
    if type(value) is not kind:
        raise _WrongTypeError(_words(kind))
    if kind is int and not -(1 << 63) <= value < 1 << 63:
        raise _WrongTypeError("a whole number of at most 64 bits")
    if kind is str and not value.replace("\n", "").isprintable():
        raise _WrongTypeError("text without invisible characters")
    return value


def _items(value: Any, kind: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _WrongTypeError(_words(kind))
    return value


def _record(value: Any, cls: type) -> Any:
    """Build a dataclass inside a list, such as one published result; it has no default."""
    if not isinstance(value, dict):
        raise _WrongTypeError(_words(cls))
    kinds = kinds_of(cls)
    if strange := sorted(map(str, set(value) - set(kinds))):
        raise _WrongTypeError(f"{_words(cls)} (not {', '.join(strange)})")
    if absent := [
        item.name for item in fields(cls) if item.default is MISSING and item.name not in value
    ]:
        raise _WrongTypeError(f"{_words(cls)} ({', '.join(absent)} is missing)")
    return cls(**{name: _convert(value[name], kinds[name]) for name in value})


def _finite(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _WrongTypeError("a finite number")
    return number


def _words(kind: Any) -> str:
    """Describe a type to a person."""
    if kind in _WORDS:
        return _WORDS[kind]
    if is_union(kind):
        others = _dataclasses_in(kind)[1:]  # one optimizer is enough as an example
        return " or ".join(_words(option) for option in get_args(kind) if option not in others)
    if is_dataclass(kind):
        names = ", ".join(item.name for item in fields(kind))
        return f"a mapping of {names}" if names else "{}"
    return "a list, as in [a, b]"
