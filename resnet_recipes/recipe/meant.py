"""What to type instead of a setting that is refused: what may have been meant, tried one by one."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import get_origin

from resnet_recipes.base.duration import is_duration
from resnet_recipes.base.errors import Hint, Kind, Problem
from resnet_recipes.base.kinds import dataclasses_in, kinds_of
from resnet_recipes.base.names import SHORT
from resnet_recipes.recipe.hydra_compose import points
from resnet_recipes.recipe.overrides import expanded
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.suggestions import (
    EVERY_SETTING,
    OFF,
    ON,
    UNITS,
    VALUES,
    Meaning,
    closest,
    meaning_of,
    near,
)
from resnet_recipes.recipe.typed import kind_of, settings

#: Returns what is wrong with words by themselves.
Attempt = Callable[[Sequence[str]], Sequence[Problem]]

_CLOCK = re.compile(r"(\d{1,3}):([0-5]\d)(?::([0-5]\d))?")
_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:e[0-9])?)"
_MEASURE = re.compile(rf"\$?{_NUMBER} ?([a-z%$/]*)")
_SQUARE = re.compile(rf"[\[(]?{_NUMBER}(?:, ?|x)\1[\])]?")
_SPAN = re.compile(r"(\d{1,9})-(\d{1,9})")
#: In what can only be typed with something else in place of a word in capital letters.
_FORM = r"[= ]\[?[A-Z]+(?=[,\] ]|$)|\.NAME="
_GPU_IDS = re.compile(r"(?:cuda:)?(\d+(?:,\d+)*),?")


def answered(
    problem: Problem,
    words: Sequence[str],
    own: Recipe,
    attempt: Attempt,
    listed: str = EVERY_SETTING,
) -> Problem:
    """Return a problem of one of the words that were typed, with what is accepted instead.

    That is the first that `attempt` accepts, else what the problem says, else what the recipe,
    `own`, has without the change; of a setting that does not exist, where all are `listed`.
    """
    given = [word for word in words if problem.key in keys_of(word)]
    given = [word for word in given if problem.kind is not Kind.UNUSED and attempt([word])]
    if not given:
        return problem
    if meaning := _accepted(given[0], problem, own, attempt):
        return told(problem, meaning)
    if problem.advice or problem.valid:
        return problem
    if problem.kind is Kind.UNKNOWN:
        return problem._replace(fix=Hint(listed))
    before = _value(own, problem.key)
    if before in (None, "", []) or isinstance(before, dict | list | tuple):
        return problem
    shown = str(before).lower() if isinstance(before, bool) else before
    return problem._replace(fix=Hint(f"{own.name} uses {shown}"))


def told(problem: Problem, meaning: Meaning) -> Problem:
    """Return a problem with what was meant."""
    if not meaning.words:
        return problem._replace(clause=meaning.rule or problem.clause, fix=(), kind=Kind.UNUSED)
    hint = (Hint(meaning.rule),) if meaning.rule else ()
    is_form = re.search(_FORM, meaning.words)
    return problem._replace(fix=(Hint(meaning.words) if is_form else meaning.words, *hint))


def keys_of(word: str) -> list[str]:
    """Return the names that a word may have in a problem: as it was typed, and in full."""
    return [word, word.partition("=")[0], *(change.key for change in expanded(word))]


def _accepted(
    word: str, problem: Problem, own: Recipe, attempt: Attempt, depth: int = 3
) -> Meaning | None:
    """Return the first candidate that is accepted, or what mends one that is not."""
    for meaning in _candidates(word, problem, own):
        words = shlex.split(meaning.words)
        if words[:1] == ["-m"]:
            if attempt(points(words[1:])[0]):
                continue
            return meaning
        is_setting = all("=" in each or each[0] == "~" for each in words)
        if not is_setting or re.search(rf" \.\.\. |^recipe=|{_FORM}", meaning.words):
            return meaning  # of flags and commands, whoever prints them decides
        if words == [word]:
            continue
        if not (wrong := attempt(words)):
            return meaning
        setting = words[0].partition("=")[0]
        fix = next(iter(wrong[0].fixes), "")
        if fix.startswith(f"{setting}=") and not attempt(shlex.split(fix)):
            return Meaning(fix)
        is_other = setting != word.partition("=")[0]
        tries = depth - 1 if is_other and len(words) == 1 else 0
        if tries and (better := _accepted(words[0], wrong[0], own, attempt, tries)):
            return better._replace(rule=better.rule or meaning.rule)
    return None


def _candidates(word: str, problem: Problem, own: Recipe) -> Iterator[Meaning]:
    """Yield what may have been meant by a word, the likeliest first."""
    name, equals, value = word.partition("=")
    kind = kind_of(expanded(f"{name}=0")[0].key)
    sections = dataclasses_in(kind)
    found: Iterator[str | Meaning]
    if name[:1] in ("+", "~") or not equals:
        found = _misshapen(word)
    elif kind is None:
        found = _misnamed(name, value)
    elif sections and problem.kind is Kind.WRONG:
        found = _in_section(name, value, list(kinds_of(sections[0])))
    else:
        found = _other_values(word, problem, own)
    for each in found:
        yield each if isinstance(each, Meaning) else Meaning(shlex.quote(each))
    for fix in problem.fixes:
        if fix.startswith(f"{name}=") or (value and fix.endswith(value)):
            yield Meaning(fix)


def _misshapen(word: str) -> Iterator[str]:
    """Yield settings for a word that is not written key=value."""
    key, _, value = map(str.strip, word.partition(":"))
    if word[0] == "+":
        yield word.lstrip("+").replace("/", ".", 1)
    elif word[0] == "~":
        yield from (f"~{key}" for key in [near(word[1:], settings())] if key)
    elif value:
        yield f"{key}={value}"
    elif os.path.isdir(word):
        yield f"data={word}"
    elif word[:1].isdigit():
        yield f"budget={word}"
    else:
        yield from (
            f"{key}={{}}" for key in [near(word, settings())] if dataclasses_in(kind_of(key))
        )


def _misnamed(name: str, value: str) -> Iterator[str | Meaning]:
    """Yield settings with names like this one, and what it means elsewhere."""
    alike = [f"{key}={value}" for key in [near(name, [*settings(), *SHORT])] if key]
    if "." in name and name.rpartition(".")[2] in {key.rpartition(".")[2] for key in settings()}:
        yield from alike
    if foreign := meaning_of(name, value):
        yield foreign
    yield from alike
    if not alike and (misspelt := meaning_of(name, value, exactly=False)):
        yield misspelt


def _in_section(section: str, value: str, names: list[str]) -> Iterator[str | Meaning]:
    """Yield settings of a section, which has these, for a value in its place."""
    several = re.findall(r"\w+", value)
    if value.lower() in OFF and not section.startswith("methods."):
        return  # a section has nothing to switch off
    if section == "methods":
        methods = [shlex.quote(f"methods.{name}={{}}") for name in several]
        yield Meaning(" ".join(methods))
    elif value[:1] == "[":
        yield Meaning(f"-m {section}={','.join(several)}")
    yield from _switched(section, value)
    yield from (f"{section}.{name}={value}" for name in ("name", *names[:1]) if name in names)
    if meaning := meaning_of(section, value):
        yield meaning
    if section.startswith("methods."):
        yield f"{section}={{}}"


def _switched(name: str, value: str) -> Iterator[str | Meaning]:
    """Yield what switches a method on or off, if a value says so of one of its settings."""
    method = ".".join(name.split(".")[:2])
    if name.startswith("methods.") and value.lower() in ON:
        yield f"{method}={{}}"
    elif name.startswith("methods.") and value.lower() in OFF:
        yield f"~{method}"
        yield Meaning("")


def _other_values(word: str, problem: Problem, own: Recipe) -> Iterator[str | Meaning]:
    """Yield a setting with other values."""
    name, _, value = word.partition("=")
    setting, text = expanded(f"{name}=0")[0].key, value.strip("'\" ").lower()
    if ours := VALUES.get(setting, {}).get(text):
        yield ours
    if setting in ("launch.device", "launch.gpus") and (ids := _GPU_IDS.fullmatch(text)):
        words = f"CUDA_VISIBLE_DEVICES={ids[1]} resnet-train ... gpus={ids[1].count(',') + 1}"
        yield Meaning(words, "an environment variable says which GPUs, gpus= how many")
    item, known = str(problem.value), problem.valid
    near_value = value.replace(item, closest(item, known) or item)
    if is_list := get_origin(kind_of(setting)) in (list, tuple):
        listed = near_value if "[" in value else f"[{value}]"
        yield f"{name}={listed}"
        yield f"{name}={re.sub('(?<=[0-9])(?=[],])', 'ep', listed)}"
    yield f"{name}={near_value}"
    yield from _switched(name, value)
    yield from _measured(name, _SQUARE.sub(r"\1", text), _value(own, problem.key))
    if is_list:
        return
    if span := _SPAN.fullmatch(text):
        yield Meaning(f"-m '{name}=range({span[1]},{int(span[2]) + 1})'")
    elif re.fullmatch(r"\[.*\]", value):
        yield Meaning(f"-m {name}={value[1:-1]}")


def _measured(name: str, text: str, before: object) -> Iterator[str]:
    """Yield what a number with a unit, or a time on the clock, may stand for."""
    if clock := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        yield f"{name}={60 * hours + minutes + bool(seconds)}m"
    measure = _MEASURE.fullmatch(text)
    if not measure or (measure[2] or "number") not in UNITS:
        return
    number, unit = float(measure[1]), re.sub(r"[\d.]", "", str(before))
    if unit == "ep" and number >= 100 and name != "max_duration":  # so many are steps
        unit = "ba"
    scales = {"n": 1, "percent": 0.01, "thousands": 1000, "days": 24}
    parts = {key: f"{number * scale:.12g}" for key, scale in scales.items()}
    for form in UNITS[measure[2] or "number"].words.split():
        filled = form.format(**parts, unit=unit)
        yield filled if "=" in filled else f"{name}={filled}"


def _value(own: Recipe, key: str) -> object:
    """Return a recipe's value of a setting; None if it has none."""
    if key == "epochs" and is_duration(own.max_duration):
        return str(own.length).removesuffix("ep")
    found: object = own
    for name in expanded(f"{key}=0")[0].key.split("."):
        found = getattr(found, name, None)
    return found
