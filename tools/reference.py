"""Write the pages of docs/reference from the code: `python tools/reference.py`."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from resnet_recipes.commands.methods import write_example
from resnet_recipes.commands.verbs import VERBS, get_usage
from resnet_recipes.methods import ORDER
from resnet_recipes.methods.base import HOOKS
from resnet_recipes.methods.card import list_settings, make_card
from resnet_recipes.methods.optimizers import OPTIMIZERS
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.library import find_packaged_folder
from resnet_recipes.recipe.schema import Recipe

#: Keys of a published result, in the order of a table's columns.
RESULT = ("top1", "epochs", "minutes", "hardware", "source")


FOLDER = Path(__file__).parents[1] / "docs/reference"


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    makers = (recipes, methods, optimizers, settings, commands)
    return {f"{maker.__name__}.md": "\n".join(maker()).rstrip() + "\n" for maker in makers}


def recipes() -> Iterator[str]:
    """Yield a section for each packaged recipe: its purpose, results, methods and file."""
    yield "# Recipes\n"
    yield (
        "The packaged recipes. A recipe is one file with the unit and source of every number. "
        "[Your own recipe](../howto/recipe.md) can start from any of them.\n"
    )
    for path in sorted(find_packaged_folder().glob("*.yaml")):
        yield from _recipe(path.read_text(encoding="utf-8"), strict_yaml.load(path).tree)


def methods() -> Iterator[str]:
    """Yield a section for each method, in running order."""
    yield "# Methods\n"
    yield (
        "The methods, in the order they run. A method is on if its key is in the "
        "`methods` section of the recipe: `methods.NAME={}` adds it with its defaults, "
        "`~methods.NAME` removes it. `resnet-recipes methods NAME` prints the same card.\n"
    )
    for method in ORDER:
        hooks = [hook for hook in HOOKS if method().provides(hook)]
        facts = {
            "Inference": _text(method.inference),
            "Acts at": ", ".join(f"`{hook}`" for hook in hooks),
            "Excludes": ", ".join(f"[{name}](#{name})" for name in sorted(method.conflicts)),
        }
        yield from _card(method, f"methods.{method.name}", facts)
        lines = "\n".join(write_example(method, hooks))
        yield (
            "In [your own loop](../library.md#one-method-in-your-own-loop):\n\n"
            f"```python\n{lines}\n```\n"
        )


def optimizers() -> Iterator[str]:
    """Yield a section for each optimizer, the default first."""
    yield "# Optimizers\n"
    yield (
        "`optimizer=NAME` selects an optimizer with all settings of "
        "`recipes/optimizer/NAME.yaml`. [From Hydra](../howto/hydra.md#groups) lists the options. "
        "A recipe contains only the settings of its own optimizer.\n"
    )
    for optimizer in OPTIMIZERS:
        yield from _card(optimizer, "optimizer", {})


def settings() -> Iterator[str]:
    """Yield a table of the keys of each section of a recipe."""
    yield "# Settings\n"
    yield (
        "Every key of a recipe. On the command line a setting is `key=value`; "
        "`resnet-train recipe=NAME --cfg` prints all of them with their values. "
        "[Methods](methods.md) and [optimizers](optimizers.md) have their own pages.\n"
    )
    sections = {
        item.name: item.default_factory
        for item in fields(Recipe)
        if isinstance(item.default_factory, type)
    }
    yield from _table("", Recipe, sections)
    for name, section in sections.items():
        if name not in ("methods", "optimizer", "published"):
            yield f"## {name}\n"
            yield from _table(f"{name}.", section)


def commands() -> Iterator[str]:
    """Yield the help page of each command."""
    yield "# Commands\n"
    for name in ("train", *VERBS):
        command = "resnet-train" if name == "train" else f"resnet-recipes {name}"
        yield f"## {command}\n\n```text\n{get_usage(name).format_page().rstrip()}\n```\n"


def _recipe(text: str, tree: Mapping[str, Any]) -> Iterator[str]:
    head = re.match(r"(?:#.*\n)*", text).group()
    about = re.sub(r"^# ?", "", head, flags=re.MULTILINE).split("\nSources:")[0]
    yield f"## {tree['name']}\n"
    yield f"{_text(about)}\n"
    if results := tree.get("published"):
        yield "| top-1 (%) | epochs | minutes | hardware | source |\n|---|---|---|---|---|"
        yield from (_row(str(result.get(key, "")) for key in RESULT) for result in results)
        yield ""
    if names := tree.get("methods"):
        yield f"Methods: {', '.join(f'[{name}](methods.md#{name})' for name in names)}.\n"
    yield f'<details markdown="1"><summary>{tree["name"]}.yaml</summary>\n'
    yield f"```yaml\n{text.rstrip()}\n```\n\n</details>\n"


def _card(item: type, key: str, facts: Mapping[str, str]) -> Iterator[str]:
    card = make_card(item)
    yield f"## {card.name}\n"
    yield f"{_text(card.summary)}\n"
    yield f"{_text(card.details)}\n"
    known = {
        "Gain": _text(card.gain),
        "Cost": _text(card.cost),
        "Avoid when": _text(card.avoid_when),
    } | facts
    yield from (f"**{label}:** {text}\n" for label, text in known.items() if text)
    if card.settings:
        yield from _table(f"{key}.", item, ["name"])


def _table(prefix: str, section: type, left_out: Collection[str] = ()) -> Iterator[str]:
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    types = get_type_hints(section)
    for row in list_settings(section):
        if row.name in left_out:
            continue
        if not row.meaning:
            raise ValueError(f"{prefix}{row.name} has no comment that explains it")
        kind = types[row.name]
        cells = (
            f"`{prefix}{row.name}`",
            _text(str(kind).removeprefix("typing.") if get_args(kind) else kind.__name__),
            f"`{row.written or '(empty)'}`",
            _text(row.meaning),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(plain: str) -> str:
    """Return plain text as Markdown.

    Escapes special characters, keeps code in backticks and links papers.
    """
    parts = plain.split("`")
    parts[::2] = [re.sub(r"([\\*_\[\]|<])", r"\\\1", part) for part in parts[::2]]
    return re.sub(
        r"arXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", "`".join(parts)
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
