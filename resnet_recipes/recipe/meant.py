"""What was plainly meant by a value that does not fit: `48px`, `10%`, `3epochs`, `1:30:00`."""

import re
import shlex
from collections.abc import Iterator

from resnet_recipes.base.duration import is_duration
from resnet_recipes.base.errors import Problem
from resnet_recipes.recipe import overrides
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.suggestions import closest

_N = r"([0-9]+(?:\.[0-9]*)?(?:e[0-9])?)"

#: A form of a value, and what its number may stand for: a factor and a unit.
_FORMS: tuple[tuple[str, tuple[tuple[float, str], ...]], ...] = (
    (_N, ((1, ""), (1, "{unit}"), (1, "ep"), (0.01, ""))),
    (rf"{_N} ?(?:px|pixels?|gpus?|images?)", ((1, ""),)),
    (rf"{_N} ?(?:%|percent)", ((0.01, ""), (1, ""), (0.01, "dur"))),
    (rf"\${_N}|{_N} ?(?:\$|usd|/h)", ((1, ""),)),
    (rf"{_N} ?k", ((1000, ""),)),
    (rf"{_N} ?(?:e|ep|epochs?)", ((1, "ep"), (1, ""))),
    (rf"{_N} ?(?:its?|iter\w*|steps?|batch(?:es)?)", ((1, "ba"),)),
    (rf"{_N} ?(?:d|days?)", ((24, "h"),)),
    (rf"{_N} ?(?:h|hr|hrs|hours?)", ((1, "h"),)),
    (rf"{_N} ?(?:m|min\w*)", ((1, "m"),)),
    (rf"[\[(]?{_N}(?:, ?|x)\1[\])]?", ((1, ""),)),
)
_CLOCK = re.compile(r"(\d{1,3}):([0-5]\d)(?::([0-5]\d))?")


def answered(problem: Problem, changed: list[str], own: Recipe) -> Problem:
    """Return a problem of a setting that was typed, with what to type instead.

    That is the value that was plainly meant, if it is accepted, else what the problem says, else
    what the recipe, `own`, has without the change.
    """
    given = next((word for word in changed if problem.key in _keys(word)), None)
    if given is None:
        return problem
    before = _value(own, problem.key)
    value, known = str(problem.value), "" if problem.fix else problem.rule
    near = given.replace(value, closest(value, re.findall(r"\w+", known)) or value)
    for word in (near, *_tried(given, before)) if any(overrides.misfits(given)) else ():
        if not any(overrides.misfits(word)):
            return problem._replace(fix=shlex.quote(word))
    if problem.fix or before in (None, "", []) or isinstance(before, dict | list | tuple):
        return problem
    shown = str(before).lower() if isinstance(before, bool) else before
    return problem._replace(fix=f"{own.name} has {shown}")


def _keys(word: str) -> list[str]:
    """Return the names that a word may have in a problem: as it was typed, and in full."""
    return [word, word.partition("=")[0], *(change.key for change in overrides.expanded(word))]


def _value(own: Recipe, key: str) -> object:
    """Return a recipe's value of a setting; None if it has none."""
    if key == "epochs" and is_duration(own.max_duration):
        return str(own.length).removesuffix("ep")
    found: object = own
    for name in overrides.expanded(f"{key}=0")[0].key.split("."):
        found = getattr(found, name, None)
    return found


def _tried(given: str, before: object) -> Iterator[str]:
    """Yield words that may have been meant, the likeliest first."""
    name, _, value = given.partition("=")
    unit = re.sub(r"[\d.]", "", before) if isinstance(before, str) else ""
    text = value.strip("'\" ").lower()
    if clock := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        yield f"{name}={60 * hours + minutes + bool(seconds)}m"
    for form, numbers in _FORMS:
        if match := re.fullmatch(form, text):
            number = float(next(filter(None, match.groups())))
            if unit == "ep" and number >= 100 and name != "max_duration":  # so many are steps
                unit = "ba"
            for factor, ending in numbers:
                if form != _N or factor == 1 or number > 1:
                    yield f"{name}={number * factor:.12g}{ending.format(unit=unit)}"
            if numbers[0][1] in ("h", "m"):  # a time in place of a length
                yield f"budget={number:.12g}{numbers[0][1]}"
