"""Write the pages of docs/reference from the code: `python tools/reference.py`."""

import re
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from resnet_recipes.base.limits import Bounds, IsDuration, Limit, OneOf, get_limits
from resnet_recipes.base.names import DOCS, SHORT_NAMES
from resnet_recipes.commands import COMMANDS, get_usage
from resnet_recipes.commands.ls import format_result, summarize
from resnet_recipes.commands.methods import format_example
from resnet_recipes.methods import ORDER, list_rivals
from resnet_recipes.methods.base import HOOKS
from resnet_recipes.methods.card import list_settings, make_card
from resnet_recipes.methods.optimizers import OPTIMIZERS
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.library import Library, find_packaged_folder
from resnet_recipes.recipe.schema import Recipe

#: Words for the type of a setting.
TYPES = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    type(None): "null",
}

#: Patterns in the text of cards and recipes, and the links that replace them.
LINKS: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"arXiv:(\d{4}\.\d{4,5})": r"[arXiv:\1](https://arxiv.org/abs/\1)",
    r"doi:(10\.\d+/[^\s,)]+)": r"[doi:\1](https://doi.org/\1)",
    r"page `(lab/\w+)`": r"[lab note](../\1.md)",
    rf"{DOCS}/lab/([\w\\]+)\.html": lambda match: _link_note(match[1]),
    rf"{DOCS}/howto/(\w+)\.html": r"[guide](../howto/\1.md)",
}

#: The pages of sections with a page of their own.
SECTION_PAGES = {"methods": "methods.md", "optimizer": "optimizers.md"}

#: Recipes to train with, in the order of docs/howto/choose.md.
FIRST_RECIPES = ("finetune", "gentle", "small", "mild", "medium", "hot", "demo")

#: Keys of a published result, in the order of a table's columns.
RESULT_KEYS = ("top1", "epochs", "minutes", "hardware", "source")

FOLDER = Path(__file__).parents[1] / "docs/reference"


def make_pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    pages = {
        "recipes": describe_recipes(),
        "methods": describe_methods(),
        "optimizers": describe_optimizers(),
        "settings": describe_settings(),
        "commands": describe_commands(),
    }
    return {f"{name}.md": "\n".join(lines).rstrip() + "\n" for name, lines in pages.items()}


def describe_recipes() -> Iterator[str]:
    """Yield a table, and a section for each packaged recipe: purpose, results, methods, file."""
    library = Library()
    rows = [summarize(library, library.find(name)) for name in library.packaged]
    rows.sort(key=lambda row: (row["group"] == "baselines", row["name"]))
    order = (*FIRST_RECIPES, *(row["name"] for row in rows))
    rows.sort(key=lambda row: order.index(row["name"]))
    yield "# Recipes\n"
    yield (
        "A recipe is one file, whose comments give the units and sources of its values. "
        "[Choose a recipe](../howto/choose.md) helps to select one, and "
        "[your own recipe](../howto/recipe.md) can start from any of them.\n\n"
        "Letters in brackets, such as \\[R\\], refer to the sources at the top of each file. The "
        "first paragraphs of a file are shown as text, above its other lines. "
        "Published times are [steady-state training times](../metrics.md#clocks), unless a recipe "
        "names another clock.\n"
    )
    for group, title in {"recipes": "To train with", "baselines": "To compare with"}.items():
        yield f"**{title}:**\n"
        yield "| recipe | epochs | published on ImageNet | use |\n|---|---|---|---|"
        for row in (row for row in rows if row["group"] == group):
            link, result = f"[{row['name']}](#{row['name']})", format_result(row["published"])
            steps = row["epochs"].replace("ba", " steps")
            yield f"| {link} | {steps} | {_format_text(result)} | {_format_text(row['about'])} |"
        yield ""
    yield (
        "The table shows the published result whose duration is closest to that of the recipe. "
        "A star marks times on the clock of MLPerf or DAWNBench.\n"
    )
    for row in rows:
        path = find_packaged_folder() / f"{row['name']}.yaml"
        yield from _format_recipe(path.read_text(encoding="utf-8"), strict_yaml.load(path).tree)


def describe_methods() -> Iterator[str]:
    """Yield a table, and a section for each method, in running order."""
    yield "# Methods\n"
    yield (
        "This page describes every method: its gain, its cost, and its settings. "
        "`methods.NAME={}` adds a method to a recipe with its defaults, and `~methods.NAME` "
        "removes it. The table lists the methods in the order they run. "
        "`resnet-recipes methods NAME` prints the same card.\n\n"
        "On a card, *gain* is in points of top-1 on ImageNet, unless it names speed or other "
        'images. A range after "Measured here" is a confidence interval, whose level is in the '
        "lab note. A difference is *not settled* if the interval contains zero. *Acts at* lists "
        "the [hooks](../contributing/method.md#the-hooks) of the method.\n"
    )
    yield from _format_overview("method", ORDER, lambda tree: tree.get("methods", ()))
    for method in ORDER:
        hooks = [hook for hook in HOOKS if method().provides(hook)]
        facts = {
            "Inference": _format_text(method.inference),
            "Acts at": ", ".join(f"`{hook}`" for hook in hooks),
            "Excludes": ", ".join(f"[{name}](#{name})" for name in list_rivals(method)),
        }
        yield from _format_card(method, f"methods.{method.name}", facts)
        lines = "\n".join(format_example(method, hooks))
        yield f"In [your own loop](../howto/own_loop.md):\n\n```python\n{lines}\n```\n"


def describe_optimizers() -> Iterator[str]:
    """Yield a section for each optimizer, the default first."""
    yield "# Optimizers\n"
    yield (
        "This page describes every optimizer and its settings. `optimizer=NAME` selects one with "
        "the settings of `recipes/optimizer/NAME.yaml`, which may differ from the defaults below. "
        "[Your own recipe](../howto/recipe.md#another-optimizer-or-schedule) lists the options. "
        "A recipe contains only the settings of its own optimizer.\n\n"
        "In formulas, `w` is a weight, `g` its gradient, `m` its momentum, and `lr` the learning "
        "rate of the step, which the [schedule](settings.md#schedule) determines.\n"
    )
    yield from _format_overview("optimizer", OPTIMIZERS, lambda tree: (tree["optimizer"]["name"],))
    for optimizer in OPTIMIZERS:
        yield from _format_card(optimizer, "optimizer", {})


def describe_settings() -> Iterator[str]:
    """Yield a table of the keys of each section of a recipe."""
    yield "# Settings\n"
    yield (
        "This page lists every setting of a recipe. The lists `defaults` and `published` are not "
        "settings: [`defaults`](../howto/recipe.md) names what the recipe starts from, and "
        "`published` its published results. To set a key on the command line, write "
        "`key=value`. `resnet-train NAME --cfg` prints the values of a recipe. "
        "[Methods](methods.md) and [optimizers](optimizers.md) have their own pages.\n\n"
        "A duration is a number with a unit: `90ep` (epochs), `500ba` (batches, that is steps) or "
        "`0.4dur` (a fraction of the run). A choice is one of the values that `|` "
        "separates in the last column.\n"
    )
    sections = {
        item.name: item.default_factory
        for item in fields(Recipe)
        if isinstance(item.default_factory, type)
    }
    links = ", ".join(
        f"[{name}]({SECTION_PAGES.get(name, f'#{name}')})"
        for name in sections
        if name != "published"
    )
    yield f"Sections: {links}.\n"
    yield (
        "## Short names\n\n"
        "Short names work on the command line, in Python, and at the top of a recipe file.\n"
    )
    yield "| short | sets |\n|---|---|"
    for short_name, forms in SHORT_NAMES.items():
        meaning = " ".join(
            form.format("N" if short_name == "epochs" else "VALUE") for form in forms
        )
        yield f"| `{short_name}={'N' if short_name == 'epochs' else 'VALUE'}` | `{meaning}` |"
    yield "\n## General\n"
    yield from _format_table("", Recipe, sections)
    for name, section in sections.items():
        if name not in (*SECTION_PAGES, "published"):
            yield f"## {name}\n"
            purpose = section.__doc__.splitlines()[0].partition(": ")[2]
            yield f"{_format_text(purpose[:1].upper() + purpose[1:])}\n"
            yield from _format_table(f"{name}.", section)


def describe_commands() -> Iterator[str]:
    """Yield a table of the commands, and the help page of each."""
    names = ("train", *COMMANDS)
    yield "# Commands\n"
    yield (
        "`resnet-train` trains, and `resnet-recipes` does everything else. This page contains the "
        "help page of every command, which `--help` also prints. See also "
        "[Exit codes](../exit_codes.md), and [Settings](settings.md) for the keys of "
        "`key=value`.\n"
    )
    yield "| command | does |\n|---|---|"
    for name in names:
        about = get_usage(name).about
        title = _name_command(name)
        yield f"| [`{title}`](#{title.replace(' ', '-')}) | {_format_text(about)} |"
    yield ""
    for name in names:
        page = get_usage(name).format_page().rstrip()
        yield f"## {_name_command(name)}\n\n```text\n{page}\n```\n"


def _name_command(name: str) -> str:
    return "resnet-train" if name == "train" else f"resnet-recipes {name}"


def _format_overview(
    title: str, items: Iterable[type], list_names: Callable[[Mapping[str, Any]], Iterable[str]]
) -> Iterator[str]:
    """Yield a table of methods or optimizers, with the recipes that use each."""
    links: dict[str, list[str]] = {}
    folder = find_packaged_folder()
    for path in sorted(folder.glob("*.yaml")):
        tree = strict_yaml.load(path).tree
        parents = [
            strict_yaml.load(folder / f"{name}.yaml").tree for name in tree.get("defaults", ())
        ]
        for name in list_names(ChainMap(tree, *parents)):  # sections of a parent that it keeps
            links.setdefault(name, []).append(f"[{path.stem}](recipes.md#{path.stem})")
    yield f"| {title} | does | recipes |\n|---|---|---|"
    for card in map(make_card, items):
        does, _, _paper = card.summary.partition(" (")
        users = ", ".join(links.get(card.name, ()))
        yield f"| [{card.name}](#{card.name}) | {_format_text(does)} | {users} |"
    yield ""


def _format_recipe(text: str, tree: Mapping[str, Any]) -> Iterator[str]:
    head = re.match(r"(?:#.*\n)*", text).group()
    about, mark, _ = re.sub(r"^# ?", "", head, flags=re.MULTILINE).partition("\nSources:")
    # the text above the sources is a paragraph of the page already
    yaml_text = text[head.index("# Sources:") if mark else len(head) :].strip()
    yield f"## {tree['name']}\n"
    yield f"{_format_text(about.rstrip())}\n"
    if results := tree.get("published"):
        yield "| top-1 (%) | epochs | minutes | hardware | source |\n|---|---|---|---|---|"
        yield from (
            _format_row(str(result.get(key, "")) for key in RESULT_KEYS) for result in results
        )
        yield ""
    if names := tree.get("methods"):
        yield f"Methods: {', '.join(f'[{name}](methods.md#{name})' for name in names)}.\n"
    yield f'<details markdown="1"><summary>{tree["name"]}.yaml</summary>\n'
    yield f"```yaml\n{yaml_text}\n```\n\n</details>\n"


def _format_card(item: type, key: str, facts: Mapping[str, str]) -> Iterator[str]:
    card = make_card(item)
    yield f"## {card.name}\n"
    yield from (f"{_format_text(text)}\n" for text in (card.summary, *card.details))
    labeled_texts = {
        "Gain": _format_text(card.gain),
        "Cost": _format_text(card.cost),
        "Avoid when": _format_text(card.avoid_when),
    } | facts
    yield from (f"**{label}:** {text}\n" for label, text in labeled_texts.items() if text)
    if card.settings:
        yield from _format_table(f"{key}.", item, ["name"])


def _format_table(prefix: str, section: type, omitted: Collection[str] = ()) -> Iterator[str]:
    """Yield a table of settings: the first sentence of each comment, and the others below it."""
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    types = get_type_hints(section)
    limits = get_limits(section)
    notes = []
    for row in list_settings(section):
        if row.name in omitted:
            continue
        if not row.meaning:
            raise ValueError(f"{prefix}{row.name} has no comment that explains it")
        meaning, *rest = re.split(r"\. (?=[A-Z`])", row.meaning, maxsplit=1)
        notes += [f"- `{prefix}{row.name}`: {_format_text(text)}" for text in rest]
        cells = (
            f"`{prefix}{row.name}`",
            _describe_value(types[row.name], limits.get(row.name, ())),
            f"`{row.default_text or '(empty)'}`",
            _format_text(meaning),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    if notes:
        yield from (*notes, "")


def _describe_value(kind: Any, limits: Iterable[Limit]) -> str:
    """Return the type of a setting and its range: "integer, between 1 and 64"."""
    name = _name_type(kind)
    for limit in limits:
        if isinstance(limit, IsDuration):
            name = name.replace("text", "duration")
        elif isinstance(limit, OneOf):
            name = name.replace("text", "choice")
        elif isinstance(limit, Bounds):
            rule = limit.find_broken_rule("").removeprefix("must be ")
            name = f"{name.removesuffix(' or text')}, {rule.removeprefix('a ')}"
    return name


def _name_type(kind: Any) -> str:
    """Return the words for a type: "number or null" for `float | None`."""
    if kind in TYPES:
        return TYPES[kind]
    options = get_args(kind)
    if get_origin(kind) is list:
        return f"list of {'pairs' if get_args(options[0]) else TYPES[options[0]] + 's'}"
    if get_origin(kind) is tuple:
        return f"{len(options)} {TYPES[options[0]]}s"
    if get_origin(kind) is dict:
        return "mapping"
    return " or ".join(map(_name_type, options))


def _format_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_format_text, cells))} |"


def _link_note(escaped: str) -> str:
    name = escaped.replace("\\", "")
    return f"[lab note](../lab/{name}.md)"


def _format_text(plain: str) -> str:
    """Return plain text as Markdown.

    Escapes special characters, keeps code in backticks, and links papers and pages.
    """
    parts = plain.split("`")
    parts[::2] = [re.sub(r"([\\*_\[\]|<])", r"\\\1", part) for part in parts[::2]]
    text = "`".join(parts)
    for pattern, link in LINKS.items():
        text = re.sub(pattern, link, text)
    return text


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in make_pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
