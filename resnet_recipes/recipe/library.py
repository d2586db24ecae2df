"""Find recipes and their options, in the user's folder first and then in the package.

Needs neither torch nor Hydra.
"""

import filecmp
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base import names
from resnet_recipes.base.duration import find_epochs_rule
from resnet_recipes.base.errors import (
    Change,
    Command,
    Fix,
    Hint,
    Kind,
    Problem,
    RecipeError,
    Statement,
    Value,
    to_text,
)
from resnet_recipes.base.model_config import NETWORKS
from resnet_recipes.base.names import SHORT_NAMES, expand_short_name
from resnet_recipes.base.paths import parse_path
from resnet_recipes.base.suggestions import make_unknown_problem
from resnet_recipes.base.suggestions.values import read_epochs
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.strict_yaml import GROUPS, Document, parse_scalar, shorten_path
from resnet_recipes.run_folder import CONFIG

USER_FOLDER = Path("recipes")
LIST_RECIPES = Command("resnet-recipes ls")
MAX_PARENTS = 7  # files that a recipe may inherit from

#: `optimizer` as a choice in `defaults`, in any Hydra spelling.
_GROUP_KEY = re.compile(rf"(?:override )?/?({'|'.join(GROUPS)})")


@dataclass(frozen=True)
class Entry:
    """A file: a recipe, or an option of a group."""

    name: str
    path: Path
    # "packaged", "user" (the user's recipe folder), "file" (given by path), "run" (a run that is
    # resumed), or "python"
    origin: str
    shadows: Path | None = None  # packaged recipe that this file hides
    group: str = ""  # "optimizer" for optimizer/lamb.yaml

    @property
    def location(self) -> str:
        """The origin of the recipe, for messages."""
        return "packaged" if self.origin == "packaged" else shorten_path(self.path)


@dataclass(frozen=True)
class Origin:
    """The files and arguments that a recipe was composed from."""

    entry: Entry
    # the SHA-256 of every file that was read, the base first
    files: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()  # changes, as the user typed them
    settings: dict[str, str] = field(default_factory=dict)  # changed settings, by full name
    batch_size: int = 0  # the global batch size in the files; 0 if they have no number
    lr: float = 0.0  # the learning rate in the files; 0 if they have no number


class Link(NamedTuple):
    """A file of a recipe, its content, and the files that it inherits from."""

    entry: Entry
    document: Document
    parents: tuple[Entry, ...] = ()


class Default(NamedTuple):
    """An item of a recipe's `defaults`: a recipe, or an option of a group."""

    group: str  # "optimizer"; "" for a recipe
    name: str


PYTHON_ORIGIN = Origin(Entry("python", Path("python"), "python"))


def find_packaged_folder() -> Path:
    """Return the folder of the packaged recipes."""
    return Path(str(resources.files("resnet_recipes.recipes")))


class Library:
    """The recipes and options in the user's folder, then those in the package."""

    def __init__(self, folder: Path | None = None):
        """Use `folder` as the user's folder, ./recipes by default.

        Raises RecipeError if `folder` is not a folder.
        """
        if folder is not None and not os.path.isdir(folder):
            hint = Hint("it contains your recipes, one YAML file each")
            raise RecipeError.of("--recipes", str(folder), "is not a folder", hint)
        package = find_packaged_folder()
        self._folder = (folder or USER_FOLDER).absolute()
        if self._folder.resolve() == package.resolve():
            self._folder = package
        self.packaged = _find_files(package)
        self.user = {} if self._folder == package else _find_files(self._folder)

    def list_entries(self) -> list[Entry]:
        """Return the recipes with valid names; a user's recipe hides a packaged one."""
        return [
            self.find(name)
            for name in dict.fromkeys((*self.packaged, *self.user))
            if names.RECIPE.fullmatch(name)
        ]

    def list_names(self) -> list[str]:
        """Return the names of all recipes, sorted."""
        return sorted(entry.name for entry in self.list_entries())

    def list_readable_names(self) -> list[str]:
        """Return the names of the recipes that can be read with all parents, sorted."""
        parents: dict[str, set[str]] = {}
        for entry in self.list_entries():
            with suppress(RecipeError):
                document = read(entry)
                above = {name for group, name in _read_defaults(document) if not group}
                if not document.problems:
                    parents[entry.name] = above - {entry.name if entry.shadows else ""}
        readable: set[str] = set()
        while new := {name for name in parents if parents[name] <= readable} - readable:
            readable |= new
        return sorted(readable)

    def find(self, name: str) -> Entry:
        """Return the recipe with a name or path.

        Raises RecipeError with a fix or all names.
        """
        if name.endswith((".yaml", ".yml")):
            return self._find_file(name)
        is_name = names.RECIPE.fullmatch(name)
        if is_name and name in self.user and not self._is_copy(name):
            return Entry(name, self.user[name], "user", self.packaged.get(name))
        if is_name and name in self.packaged:
            return Entry(name, self.packaged[name], "packaged")
        clause = "is not a recipe"
        files = (f"{name}/{CONFIG}", f"{name}.yaml", f"runs/{name}/{CONFIG}")
        fix = next((Change(f"recipe={file}") for file in files if os.path.isfile(file)), "")
        if os.path.isdir(name):
            clause = "is a folder, not a recipe"
            fix = fix or Change(f"data={name}")
        elif (network := name.replace("-", "").replace("_", "")) in NETWORKS:
            clause = "is a network, not a recipe"
            fix = Command(f"resnet-recipes plan mild model.name={network}")
        elif os.path.isfile(name):
            clause, fix = "is a file, but recipe files end in .yaml", LIST_RECIPES
        elif name in self.user:
            raise _make_rename_error(self.user[name])
        if fix:
            raise RecipeError.of("recipe", name, clause, fix)
        if os.path.isfile(path := self._folder / f"{name}.yml"):
            return self._find_file(str(path))
        raise _make_unknown_error("recipe", name, self.list_readable_names())

    def _is_copy(self, name: str) -> bool:
        """Return whether a user's recipe equals the packaged one, as in a clone."""
        try:
            return name in self.packaged and filecmp.cmp(
                self.user[name], self.packaged[name], shallow=False
            )
        except OSError:
            return False

    def read_valid_chain(self, name: str) -> list[Link]:
        """Return `read_chain(name)`. Raises RecipeError with the problems of all files."""
        links = self.read_chain(name)
        RecipeError.raise_if_any(problem for link in links for problem in link.document.problems)
        return links

    def find_option(self, group: str, name: str) -> Entry:
        """Return an option of a group. Raises RecipeError with the existing names."""
        packaged = _find_files(find_packaged_folder() / group)
        files = packaged | _find_files(self._folder / group)
        if name not in files:
            raise _make_unknown_error(group, name, sorted(files))
        origin = "packaged" if files[name] in packaged.values() else "user"
        return Entry(name, files[name], origin, group=group)

    def read_chain(self, name: str) -> list[Link]:
        """Read a recipe and its parents, the base first.

        Raises RecipeError, which names the file, and the line of an error in it.
        """
        links: list[Link] = []
        self._collect(self.find(name), links, ())
        return links

    def _find_parents(self, child: Entry, document: Document) -> Iterator[Entry]:
        """Yield the files in the `defaults` of a recipe.

        The recipe's own name means the packaged recipe with that name. A misspelled name becomes a
        problem of the document; raises RecipeError, which names file and line, for other names.
        """
        for group, name in _read_defaults(document):
            find = partial(self.find_option, group) if group else self.find
            try:
                entry = find(name)
            except RecipeError as error:
                problem = error.problems[0]._replace(where=document.locate("defaults"))
                document.problems.append(problem)
                if problem.kind is not Kind.UNKNOWN or not problem.corrections:
                    raise RecipeError(document.problems) from None
                entry = find(problem.corrections[0])
            is_own = entry.path == child.path and entry.shadows
            yield Entry(entry.name, entry.shadows, "packaged") if is_own else entry

    def _collect(self, entry: Entry, links: list[Link], below: tuple[Path, ...]) -> None:
        document = read(entry)
        if entry.path in below:
            circle = map(shorten_path, [*below[below.index(entry.path) :], entry.path])
            clause = f"lead in a circle: {' -> '.join(circle)}"
            hint = Hint("delete one of these recipes from the `defaults` of another")
            raise _make_defaults_error(document, None, clause, hint)
        if len(links) + len(below) > MAX_PARENTS:
            clause = Statement(f"a recipe may inherit from at most {MAX_PARENTS} files")
            raise RecipeError.of(shorten_path(entry.path), None, clause)
        parents = tuple(self._find_parents(entry, document))
        for parent in parents:
            self._collect(parent, links, (*below, entry.path))
        links.append(Link(entry, document, parents))

    def _find_file(self, name: str) -> Entry:
        path = parse_path("recipe", name).absolute()
        if not os.path.isfile(path):  # Path.is_file raises an error for long names
            is_recipe = path.stem in {*self.user, *self.packaged}
            fix = Value(path.stem) if is_recipe else LIST_RECIPES
            raise RecipeError.of("recipe", name, "", fix, Kind.ABSENT)
        if path.suffix == ".yml":
            raise _make_rename_error(path)
        if self.user.get(path.stem) == path:
            return self.find(path.stem)
        return Entry(path.stem, path, "file")


def read(entry: Entry) -> Document:
    """Read a file and expand its short names; an option becomes a recipe with one section.

    Raises RecipeError if it cannot be read or breaks a rule.
    """
    document = strict_yaml.load(entry.path, references=entry.origin == "user")
    group = entry.group
    if not group:
        return expand_document(document)
    if "defaults" in document.tree:
        clause = Statement("only recipes inherit")
        hint = Hint("delete the list")
        raise _make_defaults_error(document, None, clause, hint)
    lines = {f"{group}.{key}": line for key, line in document.lines.items()}
    return replace(document, tree={group: document.tree}, lines=lines)


def expand_document(document: Document) -> Document:
    """Replace short names at the top of a recipe file, such as `lr`, with full names.

    A short name and another line that set the same setting are a problem of the result.
    """
    tree = dict(document.tree)
    lines = dict(document.lines)
    problems = [*document.problems]
    for short in [name for name in SHORT_NAMES if not isinstance(tree.get(name, {}), dict)]:
        value = tree.pop(short)
        line = lines.pop(short)
        location = document.locate(short)
        if short == "epochs" and (clause := find_epochs_rule(str(value))):
            text = f"epochs: {value}"
            fix = tuple(document.format_fix(short, read_epochs(str(value))))
            problems.append(Problem(short, value, clause, fix, typed=text, where=location))
            continue
        for key, _, form in (
            target.partition("=") for target in expand_short_name(short, str(value))
        ):
            if key in lines:
                clause = f"sets {key}, as line {lines[key]} does"
                hint = Hint("delete one of them")
                problems.append(Problem(short, None, clause, hint, where=location))
            section, _, name = key.rpartition(".")
            setting = {name: value if form == "{}" else parse_scalar(form.format(value))}
            if not section:
                tree |= setting
            elif isinstance(tree.get(section, {}), dict):
                tree[section] = tree.get(section, {}) | setting
            lines[key] = line
    return replace(document, tree=tree, lines=lines, problems=problems)


def _make_rename_error(path: Path) -> RecipeError:
    stem = re.sub(r"[^a-z0-9]+", "_", path.stem.lower()).lstrip("_0123456789") or "recipe"
    new = f"{stem[:64]}.yaml"
    old = shorten_path(path)
    fix = Command.of("mv", "-n", old, str(Path(old).with_name(new)))
    return RecipeError.of(old, None, f"must be renamed to {new}", fix)


def _make_unknown_error(key: str, name: str, choices: list[str]) -> RecipeError:
    problem = make_unknown_problem(key, name, choices)
    return RecipeError([problem._replace(key=key, value=name, typed=name)])


def _read_defaults(document: Document) -> list[Default]:
    """Return the items of `defaults` in a recipe. Raises RecipeError for any other item.

    A single name that is not in a list becomes a problem of the document.
    """
    items = document.tree.get("defaults", [])
    pairs = [_parse_default(item) for item in (items if isinstance(items, list) else [items])]
    clause = f"must be a list of recipe names, and of options of {' and '.join(GROUPS)}"
    if None in pairs or isinstance(items, dict):
        fix = ("defaults: [hot]", "defaults: [hot, optimizer: lamb]")
        raise _make_defaults_error(document, items, clause, fix)
    if isinstance(items, str):
        error = _make_defaults_error(document, items, clause, f"defaults: [{items}]")
        document.problems[:] = error.problems
    own_place = Default("", "_self_")
    if own_place in pairs[:-1]:
        clause = Statement("_self_ must come last: a recipe changes what it inherits")
        fix = f"defaults: {to_text([item for item in items if item != '_self_'])}"
        raise _make_defaults_error(document, items, clause, fix)
    return [pair for pair in pairs if pair and pair != own_place]


def _make_defaults_error(
    document: Document, value: object, clause: str, fix: Fix = ()
) -> RecipeError:
    where = document.locate("defaults")
    return RecipeError([*document.problems, Problem("defaults", value, clause, fix, where=where)])


def _parse_default(item: object) -> Default | None:
    """Parse an item of `defaults`; None if it is neither a recipe nor an option."""
    if isinstance(item, dict) and len(item) == 1:
        (key, name), *_ = item.items()
        choice = _GROUP_KEY.fullmatch(key)
        is_option = choice and isinstance(name, str) and names.RECIPE.fullmatch(name)
        return Default(choice[1], name) if is_option else None
    is_recipe = isinstance(item, str) and (item == "_self_" or names.RECIPE.fullmatch(item))
    return Default("", item) if is_recipe else None


def _find_files(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
