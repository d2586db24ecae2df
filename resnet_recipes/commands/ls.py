"""`resnet-recipes ls` and `resnet-train --list`: the recipes, one line each."""

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from math import inf
from typing import Any

from resnet_recipes.base.duration import Duration, parse_fraction
from resnet_recipes.base.errors import BrokenRuleError, Hint, RecipeError, Statement
from resnet_recipes.base.field_types import convert
from resnet_recipes.base.text import wrap_text
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.printing import format_table, get_width, show
from resnet_recipes.command_line.usage import CSV, JSON, RECIPES, Usage
from resnet_recipes.recipe.library import Entry, Library
from resnet_recipes.run_folder.facts import PublishedResult, find_nearest

USAGE = Usage(
    "resnet-recipes ls",
    "list the recipes, with durations and published results",
    "resnet-recipes ls",
    RECIPES | CSV | JSON,
)

_MIN_TEXT_COLUMNS = 18  # minimum columns for text
_PUBLISHED_COLUMN = "PUBLISHED TOP-1"


def check(arguments: Arguments) -> None:
    """Raise RecipeError if there are names."""
    if names := shlex.join(arguments.positional):
        fix = Hint("resnet-recipes show NAME prints a recipe")
        raise RecipeError.of(names, None, Statement("the list of recipes takes no name"), fix)


def run(arguments: Arguments) -> int:
    """Print a table of all recipes, or JSON; needs neither torch nor Hydra."""
    library = Library(arguments.recipes)
    items = [summarize(library, entry) for entry in library.list_entries()]
    rows = [item | {"published": format_result(item["published"])} for item in items]
    show(arguments, items, _format_recipes(items), rows)
    return 0


def _format_recipes(recipes: list[dict[str, Any]]) -> Iterator[str]:
    has_results = False
    clocks = set[str]()
    for group in ("recipes", "baselines", "yours"):
        if items := [item for item in recipes if item["group"] == group]:
            lines = list(_format_group(group.upper(), items))
            if _PUBLISHED_COLUMN in lines[0]:
                results = [item["published"] for item in items if item["published"]]
                has_results = True
                clocks |= {row["clock"] for row in results if row["minutes"] and row["clock"]}
            yield from (*lines, "")
    if has_results:
        text = "PUBLISHED is the ImageNet result whose duration is closest to the recipe's."
        yield from wrap_text(text, get_width())
    if clocks:
        names = " or ".join(sorted(clocks))
        text = f"* time as defined by {names}; other times are training time."
        yield from wrap_text(text, get_width())
    yield from wrap_text(
        "All results, with hardware and source: resnet-recipes show NAME", get_width()
    )


def _format_group(group: str, items: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table whose last column is wrapped."""
    rows = [
        {
            group: item["name"],
            "EPOCHS": item["epochs"].replace("ba", " steps"),
            _PUBLISHED_COLUMN: format_result(item["published"]),
        }
        for item in items
    ]
    lines = format_table(rows, (_PUBLISHED_COLUMN, "EPOCHS"), get_width() - _MIN_TEXT_COLUMNS)
    indent = max(map(len, lines)) + 2
    for line, text in zip(lines, ["DESCRIPTION", *map(_describe_use, items)], strict=True):
        yield from wrap_text(
            text or "-",
            max(get_width(), indent + _MIN_TEXT_COLUMNS),
            line.ljust(indent),
            " " * indent,
        )


def summarize(library: Library, entry: Entry) -> dict[str, Any]:
    """Return the row of a recipe; `about` is its description, or why it cannot be read."""
    is_packaged = entry.origin == "packaged"
    item: dict[str, Any] = {
        "name": entry.name,
        "epochs": "-",
        "about": "",
        "published": None,
        "place": entry.location,
        "shadows": entry.shadows is not None,
        "group": "recipes" if is_packaged else "yours",
    }
    try:
        links = library.read_valid_chain(entry.name)
    except RecipeError as error:
        return item | {"about": f"cannot be read: {error.problems[0].lines()[0]}"}
    head: dict[str, Any] = {}
    for link in links:
        head |= link.document.tree
    tree = links[-1].document.tree
    parents = ", ".join(link.entry.name for link in links[:-1])
    item["epochs"] = _find_length(head)
    item["about"] = tree.get("about") or (f"based on {parents}" if parents else "")
    item["published"] = _find_result(tree.get("published"), item["epochs"])
    if is_packaged and tree.get("baseline"):
        item["group"] = "baselines"
    return item


def _describe_use(item: dict[str, Any]) -> str:
    """Return the purpose of a recipe, and its file if it is neither packaged nor named before."""
    is_named = item["place"] == "packaged" or item["place"] in item["about"]
    hides = "hides the packaged recipe of the same name" if item["shadows"] else ""
    location = ", ".join(filter(None, ("" if is_named else item["place"], hides)))
    return f"{item['about']} ({location})".strip() if location else item["about"]


def _find_length(head: dict[str, Any]) -> str:
    try:
        length = Duration.parse(str(head["max_duration"])).scale(
            parse_fraction(head.get("scale_schedule_ratio", 1))
        )
    except (KeyError, ValueError):
        return "-"
    return str(length).removesuffix("ep")


def _find_result(results: object, epochs: str) -> dict[str, Any] | None:
    """Return the published result with the closest duration; None if there are no results."""
    try:
        published = convert(results, list[PublishedResult])
    except BrokenRuleError:
        return None
    result = find_nearest(published, float(epochs) if epochs.isdigit() else inf)
    return asdict(result) if result else None


def format_result(result: dict[str, Any] | None) -> str:
    """Return accuracy, time and epochs as one cell."""
    if not result:
        return "-"
    cells = [f"{result['top1']:.4g}%"]
    mark = "*" if result["clock"] else ""
    cells += [f"{result['minutes']:,.4g} min{mark}"] if result["minutes"] else []
    cells += [f"{result['epochs']} epochs"] if result["epochs"] else []
    return ", ".join(cells)
