"""Parse the changes to a recipe: `optimizer.lr=1.0`, `~methods.ema`, `epochs=18`."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, get_args, get_origin

from resnet_recipes.base.duration import find_epochs_rule
from resnet_recipes.base.errors import (
    BrokenRuleError,
    Change,
    Fix,
    Hint,
    Kind,
    Problem,
    Statement,
    Value,
    list_advice,
)
from resnet_recipes.base.field_types import describe_type, find_dataclasses, is_union
from resnet_recipes.base.money import clean_price
from resnet_recipes.base.names import SHORT_NAMES, expand_short_name
from resnet_recipes.base.paths import EMPTY_CLAUSE, is_fetched, parse_path
from resnet_recipes.base.suggestions.values import add_likely_value, read_epochs
from resnet_recipes.recipe.build import find_owners, fit_sections, get_setting_type
from resnet_recipes.recipe.hydra_compose import (
    OWN_APPLICATION,
    SWEEP,
    is_unlisted,
    nest,
    read_value,
)
from resnet_recipes.recipe.strict_yaml import GROUPS

#: Settings that are paths: `~` is expanded, and the path is made absolute.
FOLDERS = ("data.root", "data.cache", "run.root")

#: The setting that is a price: $32.77 and 32.77/h mean 32.77.
PRICE = "launch.price"

#: Settings that must not be empty, by the names that users type, each with advice.
_NEEDED = {key: Hint(f"{key}=PATH") for key in ("data", "data.root", "run.root")} | {
    key: f"{key}=2h" for key in ("budget", "launch.budget", "launch.max_wall")
}

_EMPTY = re.compile(r"\s*(['\"]?)\s*\1\s*")
MAX_LENGTH = 4096  # characters per argument
MAX_BRACKETS = 32  # opening brackets per argument, since the Hydra parser recurses for each
_FULL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*")
_COMMA = r"-?\d+,\d+"
_NUMBER_OR_NULL = re.compile(r"null|[-+]?[0-9][0-9_]*(\.[0-9]*)?([eE][-+]?[0-9]+)?")


class Override(NamedTuple):
    """A change of one setting."""

    typed: str  # the argument as typed: "epochs=18"
    key: str  # "max_duration"; "optimizer" to select an option
    value: str | None  # "18ep"; None removes a method or resets an optimizer setting

    def __str__(self) -> str:
        return f"~{self.key}" if self.value is None else f"{self.key}={self.value}"

    @property
    def is_choice(self) -> bool:
        """Whether this selects an option of a group, as `optimizer=lamb` does."""
        return self.key in GROUPS and bool(re.fullmatch(r"\w+", self.value or ""))

    @property
    def argument(self) -> str:
        """This change in the Hydra grammar; text is quoted."""
        setting_type = get_setting_type(self.key)
        value = "null" if self.value is None else self.value
        takes_text = setting_type is str or (
            is_union(setting_type)
            and str in get_args(setting_type)
            and not _NUMBER_OR_NULL.fullmatch(value)
        )
        return f"++{self.key}={_quote(value) if takes_text else value}"

    def read(self) -> Any:
        """Return the value: text literally, any other value parsed by the Hydra grammar.

        Raises BrokenRuleError if the grammar rejects it.
        """
        return read_value(self.argument)


class ParseResult(NamedTuple):
    """The changes, and the problems of invalid arguments."""

    overrides: list[Override]
    problems: list[Problem]


def parse(arguments: Iterable[str]) -> ParseResult:
    """Parse arguments as changes. Raises RecipeError like `expand`."""
    overrides: list[Override] = []
    problems: list[Problem] = []
    names: set[str] = set()
    for argument in arguments:
        names.add(argument.partition("=")[0])
        if problem := _find_argument_problem(argument):
            problems.append(problem)
            continue
        for override in expand(argument):
            override_problems = list(_find_override_problems(override))
            problems += override_problems
            overrides += [] if override_problems else [override]
    for other, verb in (("ssr", "scale"), ("max_duration", "set")):
        if {"epochs", other} <= names:
            clause = f"sets the total duration, so {other}= cannot {verb} it"
            problems.append(Problem("epochs", None, clause, Hint("remove one of them")))
    return ParseResult(overrides, problems)


def make_absolute(key: str, path: str) -> str:
    """Return an absolute path; an empty path stays empty. Raises RecipeError like `parse_path`."""
    if key == "data.root" and is_fetched(path):
        return path.rstrip("/")
    if not path:
        return path
    absolute = parse_path(key, path).absolute()
    return str(absolute.resolve() if ".." in absolute.parts else absolute)


def _quote(text: str) -> str:
    """Return text in quotes for the Hydra grammar; only backslashes before a quote are doubled."""
    inside = re.sub(r"(\\*)('|\Z)", lambda match: 2 * match[1] + ("\\'" if match[2] else ""), text)
    return f"'{inside}'"


def _find_argument_problem(argument: str) -> Problem | None:
    key, equals, value = argument.partition("=")
    if (
        len(argument) > MAX_LENGTH
        or not argument.isprintable()
        or sum(map(argument.count, "[{(")) > MAX_BRACKETS
    ):
        limits = f"{MAX_LENGTH:,} characters and {MAX_BRACKETS} brackets"
        return Problem(key[:40], None, f"must be one line of at most {limits}")
    if key.lstrip("+~").split(".")[0].split("/")[0].split("@")[0] == "hydra":
        is_plug_in = re.match(r"[+~]*hydra[./](sweeper|launcher)\b", key)
        clause = Statement("Hydra itself cannot be configured here")
        fix = OWN_APPLICATION if is_plug_in else ""
        return Problem(argument, None, clause, fix, kind=Kind.UNUSED)
    if argument.startswith("+"):
        return Problem(argument, None, Statement("settings take no '+'"))
    if argument.startswith("~"):
        if re.fullmatch(r"~(methods|optimizer)\.[a-z][a-z0-9_]*", argument):
            return None
        clause = Statement("only a method or a setting of the optimizer can be removed")
        hint = Hint("the forms are '~methods.NAME' and '~optimizer.NAME'")
        return Problem(argument, None, clause, hint)
    if not argument:
        return Problem("''", None, EMPTY_CLAUSE)
    if not equals:
        return Problem(argument, None, Statement("settings are written key=value"))
    if not _FULL_NAME.fullmatch(key):
        return Problem.unknown_setting(key, value, typed=argument)
    if key == "name":
        rule = "is the name of the recipe, not of the run"
        return Problem(key, value, rule, Change(f"run={value}"))
    return _find_value_problem(key, value)


def _find_value_problem(key: str, value: str) -> Problem | None:
    if "${" in value:
        clause = Statement("references are only read from recipe files")
        fix = Hint("write the value out")
    elif "???" in value:
        clause = Statement("??? means a missing value")
        fix = Hint("write the value out")
    elif (key in _NEEDED or key in SHORT_NAMES) and _EMPTY.fullmatch(value):
        clause = EMPTY_CLAUSE
        fix = _NEEDED.get(key, ())
    elif key == "epochs" and (value == "curve" or "," in value):
        clause, fix = "means several durations: a sweep", SWEEP
    elif key == "epochs" and (clause := find_epochs_rule(value)):
        fix = read_epochs(value)
    else:
        return None
    return Problem(key, value, clause, fix)


def expand(argument: str) -> list[Override]:
    """Return the overrides of one argument. Raises RecipeError if a path in it is not valid."""
    if argument.startswith("~"):
        return [Override(argument, argument[1:], None)]
    key, _, value = argument.partition("=")
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    pairs = [full.format(value).split("=", 1) for full in expand_short_name(key, value)]
    return [Override(argument, full, _clean_value(full, text)) for full, text in pairs]


def _clean_value(key: str, value: str) -> str:
    """Return a path as an absolute path, and a price without its currency; others as typed."""
    if key == PRICE:
        return clean_price(value)
    return make_absolute(key, value) if key in FOLDERS else value


def _find_override_problems(override: Override) -> Iterator[Problem]:
    key, value = override.key, override.value
    if get_setting_type(key) is None:
        noun = "method" if re.fullmatch(r"methods\.\w+", key) else "setting"
        yield Problem.unknown_setting(key, value, typed=override.typed, noun=noun)
    elif value is not None and not override.is_choice:
        try:
            problems = list[Problem]()
            fit_sections(nest(key, override.read()), problems)
            yield from problems
            if get_origin(get_setting_type(key)) in (list, tuple) and value[:1] != "[":
                yield _add_help(Problem(key, value, "must be a list"))
        except BrokenRuleError as error:
            setting_type = get_setting_type(key)
            fix = _respell(key, value, error.fix)
            is_clear = fix or find_dataclasses(setting_type)
            clause = error.clause if is_clear else f"must be {describe_type(setting_type)}"
            if get_origin(setting_type) in (list, tuple) and "," in value:
                clause = Statement("a list needs brackets")
            yield _add_help(Problem(key, value, clause, fix))


def _add_help(problem: Problem) -> Problem:
    owners = find_owners(problem.key)
    name = problem.key.rpartition(".")[2]
    return add_likely_value(problem, owners[0], name, problem.value) if owners else problem


def _respell(key: str, value: str, otherwise: Fix) -> Fix:
    """Return a correction of a value that Hydra does not read as one value."""
    if is_unlisted(value):
        return OWN_APPLICATION
    if "," in value or value.startswith(("range(", "choice(")):
        options = get_args(get_setting_type(key)) or (get_setting_type(key),)
        is_decimal = float in options and re.fullmatch(_COMMA, value)
        if get_origin(get_setting_type(key)) in (list, tuple):
            return ()
        if _NUMBER_OR_NULL.fullmatch(value.strip(" ,")):
            return Value(value.strip(" ,"))
        if value.count("(") > value.count(")"):
            return Value(f"{value})")
        if value.startswith("range("):
            return Hint("range(1,4) means 1, 2 and 3")
        decimal = (Value(value.replace(",", ".")),) if is_decimal else ()
        return *decimal, *list_advice(otherwise)
    return Hint("quote the complete argument") if re.search(r"[\[\]{}]", value) else ()
