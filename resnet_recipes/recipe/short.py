"""Short words for settings, on the command line and at the top of a recipe file.

Such as `epochs`, `lr`, `bs`.
"""

import re
from dataclasses import replace

from resnet_recipes.base.errors import Hint, Problem, RecipeError
from resnet_recipes.base.names import SHORT
from resnet_recipes.recipe.strict_yaml import Document, plain

DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")


def targets(word: str, value: str) -> tuple[str, ...]:
    """Return what a word stands for, itself if it is none of the short ones; {} is its value."""
    if word == "epochs" and not DECIMAL.fullmatch(value):
        return ("max_duration={}", "scale_schedule_ratio=1.0")  # epochs=90ep
    if (word, value) == ("cache", "ram"):
        return ("data.memory_pixels=auto",)  # as Ultralytics' users type it
    return SHORT.get(word, (f"{_escaped(word)}={{}}",))


def _escaped(word: str) -> str:
    """Return text that `str.format` leaves as it is."""
    return word.replace("{", "{{").replace("}", "}}")


def written_out(document: Document) -> Document:
    """Return a recipe file with the settings that its short words stand for.

    Raises RecipeError if one of them sets what another line sets.
    """
    tree, lines, problems = dict(document.tree), dict(document.lines), []
    for word in [name for name in SHORT if not isinstance(tree.get(name, {}), dict)]:
        value, line = tree.pop(word), lines.pop(word)
        for key, _, form in (target.partition("=") for target in targets(word, str(value))):
            if key in lines:
                rule = f"{word} sets {key}, as line {lines[key]} does"
                problems.append(
                    Problem(document.where(word), None, rule, Hint("delete one of them"))
                )
            section, _, name = key.rpartition(".")
            setting = {name: value if form == "{}" else plain(form.format(value))}
            if not section:
                tree |= setting
            elif isinstance(tree.get(section, {}), dict):
                tree[section] = tree.get(section, {}) | setting
            lines[key] = line
    RecipeError.refuse(problems)
    return replace(document, tree=tree, lines=lines)
