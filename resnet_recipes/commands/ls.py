"""`resnet-recipes ls` and `resnet-train --list`: the recipes that there are."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnet_recipes.commands.arguments import split
from resnet_recipes.composing.library import Entry, Library
from resnet_recipes.duration import Duration, decimal
from resnet_recipes.errors import RecipeError
from resnet_recipes.report.text import printable

FLAGS = {"--recipes": "DIR", "--json": ""}


def run(argv: Sequence[str]) -> int:
    """Print all recipes; needs neither torch nor Hydra."""
    arguments = split(argv, FLAGS, "resnet-train recipe=mild")
    folder = arguments.flags.get("--recipes")
    list_recipes(Path(folder) if folder else None, as_json="--json" in arguments)
    return 0


def list_recipes(folder: Path | None, as_json: bool = False) -> None:
    """Print a table of all recipes, or the same as JSON."""
    library = Library(folder)
    found = [_summary(library, entry) for entry in library.entries()]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    row = "{:<14} {:>6} {:>6} {:>8}  {}"
    print(row.format("NAME", "EPOCHS", "TOP-1", "TIME", "USE IT FOR"))
    for item in found:
        best = item["published"] or {}
        cells = (item["name"], item["epochs"], best.get("top1", "-"), _minutes(best.get("minutes")), item["about"])
        print(row.format(*map(printable, cells)))
        if item["place"] != "packaged":
            print(f"{'':<14} {item['place']}" + (", instead of the packaged recipe of this name" if item["shadows"] else ""))
    print("\nTOP-1 and TIME are the first result its authors published; --describe NAME shows all, with hardware and source.")


def _summary(library: Library, entry: Entry) -> dict[str, Any]:
    """Return the head of a recipe; what is wrong with one that cannot be read stands in `about`."""
    item = {"name": entry.name, "epochs": "-", "about": "", "published": None, "place": entry.place, "shadows": entry.shadows is not None}
    try:
        links = library.chain(entry.name)
    except RecipeError as error:
        return item | {"about": f"cannot be read: {str(error.problems[0]).splitlines()[0]}"}
    head: dict[str, Any] = {}
    for _, document in links:
        head |= document.tree
    own = links[-1][1].tree
    results = own.get("published")
    first = results[0] if isinstance(results, list) and results and isinstance(results[0], dict) else None
    about = own.get("about") or f"based on {', '.join(link.name for link, _ in links[:-1])}" if len(links) > 1 else own.get("about", "")
    return item | {"epochs": _length(head), "about": about, "published": first}


def _length(head: dict[str, Any]) -> str:
    try:
        length = Duration.parse(str(head["max_duration"])).scaled(decimal(head.get("scale_schedule_ratio", 1)))
    except (KeyError, ValueError):
        return "-"
    return str(length).removesuffix("ep")


def _minutes(minutes: object) -> str:
    return f"{minutes:g} min" if isinstance(minutes, int | float) else "-"
