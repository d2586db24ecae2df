"""Where recipes are: the user's folder first, then the packaged ones. Needs neither torch nor Hydra."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from resnet_recipes.composing import strict_yaml
from resnet_recipes.composing.strict_yaml import Document, shown
from resnet_recipes.errors import Problem, RecipeError

USER_FOLDER = Path("recipes")
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
MAX_PARENTS = 8


@dataclass(frozen=True)
class Entry:
    """One recipe file."""

    name: str
    path: Path
    origin: str                         # "packaged", "user" (the user's recipe folder) or "file" (named by its path)
    shadows: Path | None = None         # the packaged recipe of the same name, which this file hides

    @property
    def place(self) -> str:
        """Where the recipe is from, as messages print it."""
        return "packaged" if self.origin == "packaged" else shown(self.path)


def packaged_folder() -> Path:
    """Return the folder of the packaged recipes."""
    return Path(str(resources.files("resnet_recipes.recipes")))


class Library:
    """The recipes that can be named: those of a user's folder, which win, and the packaged ones."""

    def __init__(self, folder: Path | None = None):
        """Use `folder` as the user's, or ./recipes if there is one."""
        if folder is not None and not folder.is_dir():
            raise RecipeError([Problem("--recipes", str(folder), "is not a folder")])
        chosen = folder or USER_FOLDER
        self.packaged = {path.stem: path for path in sorted(packaged_folder().glob("*.yaml"))}
        same = chosen.is_dir() and chosen.resolve() == packaged_folder().resolve()
        self.user = {} if same else {path.stem: path.absolute() for path in sorted(chosen.glob("*.yaml"))}

    def entries(self) -> list[Entry]:
        """Return every recipe that has a usable name, packaged ones first; a shadowed one is left out."""
        names = [name for name in (*self.packaged, *self.user) if NAME.fullmatch(name)]
        return [self.find(name) for name in dict.fromkeys(names)]

    def find(self, name: str) -> Entry:
        """Return the recipe of a name or a path. Raises RecipeError with the names that exist."""
        if name.endswith((".yaml", ".yml")):
            return self._file(name)
        if not NAME.fullmatch(name):
            raise RecipeError([Problem("recipe", name, "must be a name (lower-case letters, digits and '_') or a path ending in .yaml",
                                       f"there are: {', '.join(self._names())}")])
        if name in self.user:
            return Entry(name, self.user[name], "user", self.packaged.get(name))
        if name in self.packaged:
            return Entry(name, self.packaged[name], "packaged")
        near = get_close_matches(name, self._names(), n=1)
        raise RecipeError([Problem("recipe", name, "there is no such recipe" + (f"; did you mean {near[0]} ?" if near else ""),
                                   f"there are: {', '.join(self._names())}")])

    def chain(self, name: str) -> list[tuple[Entry, Document]]:
        """Read a recipe and those it inherits from, the most basic one first. Raises RecipeError naming file and line."""
        links: list[tuple[Entry, Document]] = []
        self._collect(self.find(name), links, ())
        return links

    def _collect(self, entry: Entry, links: list[tuple[Entry, Document]], below: tuple[Path, ...]) -> None:
        document = strict_yaml.load(entry.path, references=entry.origin == "user")
        if entry.path in below:
            raise RecipeError([Problem(document.where("defaults"), None, "recipes inherit from each other in a circle")])
        if len(links) + len(below) >= MAX_PARENTS:
            raise RecipeError([Problem(shown(entry.path), None, f"is one more than the {MAX_PARENTS} files that a recipe may be made of")])
        for parent in parents(document):
            found = self._parent(parent, entry, document)
            self._collect(found, links, (*below, entry.path))
        links.append((entry, document))

    def _parent(self, name: str, child: Entry, document: Document) -> Entry:
        """Return what a name in `defaults` means: a recipe called as its parent inherits from the packaged one."""
        try:
            found = self.find(name)
        except RecipeError as error:
            problem = error.problems[0]
            raise RecipeError([problem._replace(key=document.where("defaults"))]) from None
        if found.path == child.path and found.shadows:
            return Entry(name, found.shadows, "packaged")
        return found

    def _file(self, name: str) -> Entry:
        path = Path(name).expanduser().absolute()
        if path.suffix == ".yml":
            raise RecipeError([Problem("recipe", name, "recipe files end in .yaml", f"rename it to {path.stem}.yaml")])
        if not path.is_file():
            raise RecipeError([Problem("recipe", name, "there is no such file")])
        own = next((key for key, mine in self.user.items() if mine == path), None)
        return self.find(own) if own and NAME.fullmatch(own) else Entry(path.stem, path, "file")

    def _names(self) -> list[str]:
        return sorted({*self.packaged, *self.user})


def parents(document: Document) -> list[str]:
    """Return the names in a recipe's `defaults`. Raises RecipeError if it has anything but names."""
    names = document.tree.get("defaults", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and (name == "_self_" or NAME.fullmatch(name)) for name in names):
        raise RecipeError([Problem(document.where("defaults"), names, "must be a list of recipe names", "defaults: [hot]")])
    if "_self_" in names[:-1]:
        raise RecipeError([Problem(document.where("defaults"), names, "_self_ can only stand last: a recipe changes what it inherits")])
    return [name for name in names if name != "_self_"]
