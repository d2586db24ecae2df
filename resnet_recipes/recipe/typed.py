"""A plain recipe of nested mappings as typed sections, with every problem of it."""

from dataclasses import asdict
from functools import cache
from typing import Any, get_args, get_origin

from resnet_recipes.base.errors import Fix, Hint, Kind, Problem, RecipeError
from resnet_recipes.base.kinds import find_dataclasses, kinds_of, words
from resnet_recipes.base.names import targets
from resnet_recipes.base.suggestions import find_closest, find_meaning, find_misspelled
from resnet_recipes.base.values import OFF, ON
from resnet_recipes.recipe.schema import Recipe


def fitting(
    tree: dict[str, Any], prefix: str = "", in_file: bool = False
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the tree without values in place of sections, or sections in place of values.

    Each of them is a problem. Types of values are checked later, by `typed`.
    """
    fits, problems = {}, []
    for name, value in tree.items():
        key = f"{prefix}{name}"
        kind = kind_of(key)
        sections = find_dataclasses(kind)
        if (
            sections
            and not isinstance(value, dict)
            and not (value is None and type(None) in get_args(kind))
        ):
            rule = "must be a mapping of its settings"
            fix = _as_mapping(key, value, sections[0]) if in_file else ""
            problems.append(Problem(key, value, rule, fix or _settings_of(sections[0])))
        elif kind and not sections and get_origin(kind) is not dict and isinstance(value, dict):
            problems.append(Problem(key, value, f"must be {words(kind)}"))
        elif isinstance(value, dict):
            fits[name], wrong = fitting(value, f"{key}.", in_file)
            problems += wrong
        else:
            fits[name] = value
    return fits, problems


def _as_mapping(key: str, value: Any, section: type) -> Fix:
    """Return the lines of a recipe file for a section whose value is not a mapping; or ""."""
    text, name, kinds = str(value).lower(), key.rpartition(".")[2], kinds_of(section)
    if key == "methods":
        given = value if isinstance(value, list) else [text]
        listed = [find_misspelled(each, kinds) for each in given]
        on = ", ".join(f"{each}: {{}}" for each in listed)
        return f"methods: {{{on}}}" if all(listed) else ""
    if key.startswith("methods."):
        if isinstance(value, int | float) and not isinstance(value, bool) and kinds:
            return f"{name}: {{{next(iter(kinds))}: {value}}}"
        shown = f"{name}: {{}}" if text in ON else f"{name}: null"
        return shown if text in (*ON, *OFF) else Hint(f"{name}: {{}} turns it on, null off")
    if isinstance(value, str) and "name" in kinds:
        return f"{name}: {{name: {value}}}"
    meaning = find_meaning(key, str(value))
    setting, equals, found = meaning.words.partition("=") if meaning else ("", "", "")
    place, _, last = targets(setting, found)[0].partition("=")[0].rpartition(".")
    return f"{name}: {{{last}: {found}}}" if equals and place == key else ""


def whole(section: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return every setting of a section: those that were chosen, and the defaults of the others.

    Settings of an optimizer that was not chosen are null, so that what is merged into a section
    replaces all of it.
    """
    options = find_dataclasses(settings()[section])
    own = next((option for option in options if option.name == chosen.get("name")), options[0])
    others = {name: None for option in options for name in kinds_of(option)}
    return others | plain(asdict(own())) | chosen


def typed(tree: dict[str, Any]) -> tuple[Recipe, list[Problem]]:
    """Return a recipe and everything wrong with the tree: names, types, and its own rules."""
    problems: list[Problem] = []
    recipe = build(Recipe, tree, "", problems)
    wrong = {problem.key for problem in problems}  # the recipe has defaults for these
    return recipe, problems + [one for one in recipe.problems() if one.key not in wrong]


@cache
def settings() -> dict[str, Any]:
    """Return the type of every setting by its full name, sections and methods included."""
    found: dict[str, Any] = {}

    def visit(cls: type, prefix: str) -> None:
        for name, kind in kinds_of(cls).items():
            found[prefix + name] = kind
            for section in find_dataclasses(kind):
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
    """Build one section; an unknown name, or a value that does not fit, is a problem."""
    made, kinds = cls(), kinds_of(cls)
    for key in (f"{prefix}{name}" for name in tree if name not in kinds):
        meant = find_closest(key, settings())
        problems.append(Problem(key, None, "setting", meant, kind=Kind.UNKNOWN))
    for name, kind in kinds.items():
        if name not in tree:
            continue
        key, value, sections = prefix + name, tree[name], find_dataclasses(kind)
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
        meant = find_closest(str(name), names)
        fix = f"{key}={meant}" if meant else ""
        problems.append(Problem(f"{key}.name", name, "", fix, tuple(names)))
        return sections[0], {}
    own = kinds_of(names[name])
    owners = {each: [one for one in names if each in kinds_of(names[one])] for each in tree}
    for setting, others in owners.items():
        if others and setting not in own and tree[setting] is not None:
            rule = f"is not a setting of {name}"
            fix = Hint(f"{setting} is a setting of {', '.join(others)}")
            found = Problem(f"{key}.{setting}", tree[setting], rule, fix)
            problems.append(found)
    mine = {each: value for each, value in tree.items() if each in own or not owners[each]}
    return names[name], mine


def _settings_of(section: type) -> Hint:
    names = ", ".join(kinds_of(section))
    return Hint(f"its settings: {names}; {{}} for their defaults" if names else "write {}")


def plain(value: Any) -> Any:
    """Return mappings and lists as YAML has them: without tuples."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
