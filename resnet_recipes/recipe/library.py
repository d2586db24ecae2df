"""Where recipes are: the user's folder first, then the packaged ones. Needs neither torch nor Hydra."""

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from resnet_recipes.base import names
from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.strict_yaml import Document, shown
from resnet_recipes.recipe.suggestions import did_you_mean

USER_FOLDER = Path("recipes")
MAX_PARENTS = 8


@dataclass(frozen=True)
class Entry:
    """One recipe file."""

    name: str
    path: Path
    origin: str  # "packaged", "user" (the user's recipe folder) or "file" (named by its path)
    shadows: Path | None = None  # the packaged recipe of the same name, which this file hides

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
        if folder is not None and not os.path.isdir(folder):
            raise RecipeError([Problem("--recipes", str(folder), "is not a directory")])
        chosen = folder or USER_FOLDER
        self.packaged = {path.stem: path for path in sorted(packaged_folder().glob("*.yaml"))}
        same = chosen.is_dir() and chosen.resolve() == packaged_folder().resolve()
        self.user = (
            {} if same else {path.stem: path.absolute() for path in sorted(chosen.glob("*.yaml"))}
        )

    def entries(self) -> list[Entry]:
        """Return every recipe with a valid name, packaged ones first; shadowed ones are left out."""
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
        rule = (
            "no such recipe"
            if usable
            else "is neither the name of a recipe nor a path ending in .yaml"
        )
        meant, known = did_you_mean(name, self.names()), f"recipes: {', '.join(self.names())}"
        raise RecipeError([Problem("recipe", name, f"{rule}; {meant}" if meant else rule, known)])

    def chain(self, name: str) -> list[tuple[Entry, Document]]:
        """Read a recipe and those it inherits from, the most basic one first. Raises RecipeError with file and line."""
        links: list[tuple[Entry, Document]] = []
        self._collect(self.find(name), links, ())
        return links

    def _collect(
        self, entry: Entry, links: list[tuple[Entry, Document]], below: tuple[Path, ...]
    ) -> None:
        document = strict_yaml.load(entry.path, references=entry.origin == "user")
        if entry.path in below:
            raise RecipeError(
                [
                    Problem(
                        document.where("defaults"),
                        None,
                        "recipes inherit from each other in a circle",
                    )
                ]
            )
        if len(links) + len(below) >= MAX_PARENTS:
            raise RecipeError(
                [
                    Problem(
                        shown(entry.path),
                        None,
                        f"a recipe may inherit from at most {MAX_PARENTS - 1} files",
                    )
                ]
            )
        for parent in parents(document):
            found = self._parent(parent, entry, document)
            self._collect(found, links, (*below, entry.path))
        links.append((entry, document))

    def _parent(self, name: str, child: Entry, document: Document) -> Entry:
        """Return the recipe that `defaults` names; one with the child's own name is the packaged one."""
        try:
            found = self.find(name)
        except RecipeError as error:
            problem = error.problems[0]
            raise RecipeError([problem._replace(key=document.where("defaults"))]) from None
        if found.path == child.path and found.shadows:
            return Entry(name, found.shadows, "packaged")
        return found

    def _file(self, name: str) -> Entry:
        path = typed_path("recipe", name).absolute()
        if path.suffix == ".yml":
            raise RecipeError(
                [
                    Problem(
                        "recipe",
                        name,
                        "recipe files end in .yaml",
                        f"rename it to {path.stem}.yaml",
                    )
                ]
            )
        if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            raise RecipeError([Problem("recipe", name, "no such file")])
        own = next((key for key, mine in self.user.items() if mine == path), None)
        return (
            self.find(own)
            if own and names.RECIPE.fullmatch(own)
            else Entry(path.stem, path, "file")
        )


def parents(document: Document) -> list[str]:
    """Return the names in a recipe's `defaults`. Raises RecipeError if it has anything but names."""
    listed = document.tree.get("defaults", [])
    if not isinstance(listed, list) or not all(
        isinstance(name, str) and names.RECIPE.fullmatch(name.strip("_")) for name in listed
    ):
        raise RecipeError(
            [
                Problem(
                    document.where("defaults"),
                    listed,
                    "must be a list of recipe names",
                    "defaults: [hot]",
                )
            ]
        )
    if "_self_" in listed[:-1]:
        raise RecipeError(
            [
                Problem(
                    document.where("defaults"),
                    listed,
                    "_self_ must come last: a recipe changes what it inherits",
                )
            ]
        )
    return [name for name in listed if name != "_self_"]
