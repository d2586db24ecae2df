"""Where recipes and their options are: the user's folder first, then the package.

Needs neither torch nor Hydra.
"""

import os
import re
import shlex
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from resnet_recipes.base import names
from resnet_recipes.base.architecture import NETWORKS
from resnet_recipes.base.errors import Fix, Hint, Kind, Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.base.suggestions import make_unknown
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.short import written_out
from resnet_recipes.recipe.strict_yaml import Document, shown
from resnet_recipes.run_folder import CONFIG

USER_FOLDER = Path("recipes")
MAX_PARENTS = 8

#: Sections of a recipe that can be chosen as a whole; a folder of each name holds the options.
GROUPS = ("optimizer", "schedule")

#: `optimizer` as a choice in `defaults`; Hydra's own spellings of the same choice mean the same.
_CHOICE = re.compile(rf"(?:override )?/?({'|'.join(GROUPS)})")


@dataclass(frozen=True)
class Entry:
    """One file: a recipe, or an option of a group."""

    name: str
    path: Path
    # "packaged", "user" (the user's recipe folder), "file" (named by its path), or "python"
    origin: str
    shadows: Path | None = None  # the packaged recipe of the same name, which this file hides
    group: str = ""  # "optimizer" for optimizer/lamb.yaml

    @property
    def place(self) -> str:
        """Where the recipe is from, as messages print it."""
        return "packaged" if self.origin == "packaged" else shown(self.path)


@dataclass(frozen=True)
class Origin:
    """Where a recipe came from."""

    entry: Entry
    # every file that was read, the most basic one first, with its SHA-256
    files: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()  # the changes, as they were typed
    settings: dict[str, str] = field(default_factory=dict)  # what they set, by key, in full


#: Of a recipe that a program has made.
PROGRAM = Origin(Entry("python", Path("python"), "python"))


def packaged_folder() -> Path:
    """Return the folder of the packaged recipes."""
    return Path(str(resources.files("resnet_recipes.recipes")))


class Library:
    """What can be named.

    The recipes and options of a user's folder, which win, and the packaged ones.
    """

    def __init__(self, folder: Path | None = None):
        """Use `folder` as the user's, or ./recipes if there is one."""
        if folder is not None and not os.path.isdir(folder):
            raise RecipeError.of("--recipes", str(folder), "is not a directory")
        package, self._folder = packaged_folder(), (folder or USER_FOLDER).absolute()
        if self._folder.resolve() == package.resolve():
            self._folder = package
        self.packaged = _files(package)
        self.user = {} if self._folder == package else _files(self._folder)

    def entries(self) -> list[Entry]:
        """Return every recipe with a valid name, packaged ones first.

        Shadowed ones are left out.
        """
        return [
            self.find(name)
            for name in dict.fromkeys((*self.packaged, *self.user))
            if names.RECIPE.fullmatch(name)
        ]

    def names(self) -> list[str]:
        """Return the names of all recipes, sorted."""
        return sorted(entry.name for entry in self.entries())

    def find(self, name: str) -> Entry:
        """Return the recipe of a name or a path. Raises RecipeError with the names that exist."""
        if name.endswith((".yaml", ".yml")):
            return self._file(name)
        usable = names.RECIPE.fullmatch(name)
        if usable and name in self.user:
            return Entry(name, self.user[name], "user", self.packaged.get(name))
        if usable and name in self.packaged:
            return Entry(name, self.packaged[name], "packaged")
        rule = "is not a recipe"
        files = (f"{name}/{CONFIG}", f"{name}.yaml", f"runs/{name}/{CONFIG}")
        fix = next((f"recipe={file}" for file in files if os.path.isfile(file)), "")
        if os.path.isdir(name):
            rule, fix = "is a folder, not a recipe", fix or f"data={shlex.quote(name)}"
        elif name in NETWORKS:
            rule, fix = "is a network, not a recipe", f"recipe=mild model.name={name}"
        if fix:
            raise RecipeError.of("recipe", name, rule, fix)
        raise _not_found("recipe", name, self.names())

    def option(self, group: str, name: str) -> Entry:
        """Return an option of a group. Raises RecipeError with the names that exist."""
        packaged = _files(packaged_folder() / group)
        found = packaged | _files(self._folder / group)
        if name not in found:
            raise _not_found(group, name, sorted(found))
        origin = "packaged" if found[name] in packaged.values() else "user"
        return Entry(name, found[name], origin, group=group)

    def chain(self, name: str) -> list[tuple[Entry, Document]]:
        """Read a recipe and what it inherits from, the most basic file first.

        Raises RecipeError with file and line.
        """
        links: list[tuple[Entry, Document]] = []
        self._collect(self.find(name), links, ())
        return links

    def inherited(self, child: Entry, document: Document) -> list[Entry]:
        """Return what a recipe's `defaults` name; its own name is the packaged recipe's."""
        try:
            found = [
                self.option(group, name) if group else self.find(name)
                for group, name in parents(document)
            ]
        except RecipeError as error:
            place = document.where("defaults")
            problem = error.problems[0]
            named = {"key": problem.value, "value": None} if problem.kind is Kind.UNKNOWN else {}
            raise RecipeError([problem._replace(where=place, typed="", **named)]) from None
        return [
            Entry(entry.name, entry.shadows, "packaged")
            if entry.path == child.path and entry.shadows
            else entry
            for entry in found
        ]

    def _collect(
        self, entry: Entry, links: list[tuple[Entry, Document]], below: tuple[Path, ...]
    ) -> None:
        document = read(entry)
        if entry.path in below:
            rule = "recipes inherit from each other in a circle"
            raise RecipeError([_of_defaults(document, rule)])
        if len(links) + len(below) >= MAX_PARENTS:
            rule = f"a recipe may inherit from at most {MAX_PARENTS - 1} files"
            raise RecipeError.of(shown(entry.path), None, rule)
        for parent in self.inherited(entry, document):
            self._collect(parent, links, (*below, entry.path))
        links.append((entry, document))

    def _file(self, name: str) -> Entry:
        path = typed_path("recipe", name).absolute()
        if path.suffix == ".yml":
            fix = Hint(f"rename it to {path.stem}.yaml")
            raise RecipeError.of("recipe", name, "recipe files end in .yaml", fix)
        if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            known = path.stem in {*self.user, *self.packaged}
            fix = f"recipe={path.stem}" if known else "resnet-recipes ls"
            raise RecipeError.of("recipe", name, "", fix, Kind.ABSENT)
        if self.user.get(path.stem) == path and names.RECIPE.fullmatch(path.stem):
            return self.find(path.stem)
        return Entry(path.stem, path, "file")


def read(entry: Entry) -> Document:
    """Read a file, its short words written out; an option becomes the section of a recipe.

    Raises RecipeError with file and line.
    """
    document = strict_yaml.load(entry.path, references=entry.origin == "user")
    group = entry.group
    if not group:
        return written_out(document)
    if "defaults" in document.tree:
        place = document.where("defaults")
        raise RecipeError.of(place, None, "only recipes inherit", Hint("delete the list"))
    lines = {f"{group}.{key}": line for key, line in document.lines.items()}
    return Document(entry.path, {group: document.tree}, lines, document.raw)


def _not_found(key: str, name: str, known: list[str]) -> RecipeError:
    part = name.lower()
    within = [one for one in known if one in part or (len(part) > 3 and one.startswith(part))]
    problem = make_unknown(key, within[0] if within else name, known)
    return RecipeError([problem._replace(key=key, value=name, typed=name)])


def parents(document: Document) -> list[tuple[str, str]]:
    """Return what a recipe's `defaults` list.

    ("", "hot") is a recipe, ("optimizer", "lamb") an option. Raises RecipeError if it has anything
    else.
    """
    listed = document.tree.get("defaults", [])
    found = [_parent(item) for item in listed] if isinstance(listed, list) else [None]
    if None in found:
        rule = f"must be a list of recipe names, and of options of {' and '.join(GROUPS)}"
        fix = ("defaults: [hot]", "defaults: [hot, optimizer: lamb]")
        raise RecipeError([_of_defaults(document, rule, fix)])
    if ("", "_self_") in found[:-1]:
        rule = "_self_ must come last: a recipe changes what it inherits"
        raise RecipeError([_of_defaults(document, rule)])
    return [pair for pair in found if pair != ("", "_self_")]


def _of_defaults(document: Document, rule: str, fix: Fix = ()) -> Problem:
    listed, place = document.tree["defaults"], document.where("defaults")
    return Problem("defaults", listed, rule, fix, where=place)


def _parent(item: object) -> tuple[str, str] | None:
    """Return an item of `defaults` as group and name.

    None if it is neither a recipe nor an option.
    """
    if isinstance(item, dict) and len(item) == 1:
        (key, name), *_ = item.items()
        choice = _CHOICE.fullmatch(key)
        usable = choice and isinstance(name, str) and names.RECIPE.fullmatch(name)
        return (choice[1], name) if usable else None
    usable = isinstance(item, str) and (item == "_self_" or names.RECIPE.fullmatch(item))
    return ("", item) if usable else None


def _files(folder: Path) -> dict[str, Path]:
    """Return the recipe files directly in a folder, by the stems of their names."""
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
