"""Short words for settings, on the command line and at the top of a recipe file.

Such as `epochs`, `lr`, `bs`.
"""

import re
from dataclasses import replace

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.recipe.strict_yaml import Document, plain

#: Short words and what they stand for; the value replaces {}.
SHORT = {
    "epochs": ("max_duration={}ep", "scale_schedule_ratio=1.0"),
    "ssr": ("scale_schedule_ratio={}",),
    "lr": ("optimizer.lr={}",),
    "wd": ("optimizer.weight_decay={}",),
    "bs": ("batch.global_size={}",),
    "gpus": ("launch.gpus={}",),
    "data": ("data.root={}",),
    "run": ("run.name={}",),
    "workers": ("data.workers={}",),
    "cache": ("data.memory_pixels={}",),
    "budget": ("launch.budget={}",),
    "stop_at_top1": ("evaluation.stop_at_top1={}",),
}

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
                problems.append(Problem(document.where(word), None, rule, "delete one of them"))
            section, _, name = key.rpartition(".")
            setting = {name: value if form == "{}" else plain(form.format(value))}
            if not section:
                tree |= setting
            elif isinstance(tree.get(section, {}), dict):
                tree[section] = tree.get(section, {}) | setting
            lines[key] = line
    RecipeError.refuse(problems)
    return replace(document, tree=tree, lines=lines)
