"""Parse the arguments of a command, and reject wrong ones."""

import os
import re
import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Command, Hint, Kind, Problem, RecipeError, Statement
from resnet_recipes.base.names import SHORT_NAMES, find_short_name, list_keys
from resnet_recipes.base.paths import parse_path
from resnet_recipes.base.suggestions import RUN_FLAGS
from resnet_recipes.command_line.output_files import check_output_file
from resnet_recipes.command_line.unknown_flags import (
    WRITTEN,
    add_argument,
    explain_flag,
    explain_missing_value,
    explain_settings,
    find_plain_flag,
    is_argument,
    name_setting,
    to_key,
)
from resnet_recipes.command_line.usage import Usage
from resnet_recipes.run_folder.lock import is_running
from resnet_recipes.run_folder.runs import iterate_newest_runs

#: The flags of this command line, by their spelling in Hydra.
_HYDRA_FLAGS = {"--multirun": "-m", "--cfg=job": "--cfg"}

_SIGNED_NUMBER = re.compile(r"-?[0-9.]+(e-?[0-9]+)?")

DATA_KEYS = ("data", "data.root")
GPUS_KEYS = ("gpus", "launch.gpus")
BUDGET_KEYS = ("budget", "launch.budget")
NAME_KEYS = ("run", "run.name")


@dataclass(frozen=True)
class Arguments:
    """Flags with their values ("" for none), and all other arguments in order."""

    flags: Mapping[str, str] = field(default_factory=dict)
    positional: Sequence[str] = ()
    command: str = "resnet-train"  # command that has these arguments

    def __contains__(self, flag: str) -> bool:
        return flag in self.flags

    @property
    def recipes(self) -> Path | None:
        """The user's recipe folder, if the command names it."""
        folder = self.flags.get("--recipes")
        return parse_path("--recipes", folder) if folder else None


def list_typed_words() -> list[str]:
    """Return the words of this process's command; `resnet-recipes train` is `resnet-train`."""
    words = sys.argv[1:]
    return ["resnet-train", *words[words[:1] == ["train"] :]]


def select_arguments(arguments: Iterable[str], *keys: str) -> list[str]:
    """Return the arguments that set one of these keys."""
    return [text for text in arguments if "=" in text and text.partition("=")[0] in keys]


def drop_arguments(arguments: Iterable[str], *keys: str) -> list[str]:
    """Return the arguments that set none of these keys."""
    return [argument for argument in arguments if not select_arguments([argument], *keys)]


def get_value(arguments: Iterable[str], *keys: str) -> str:
    """Return the first value that an argument sets for one of these keys, or ""."""
    values = (argument.partition("=")[2] for argument in select_arguments(arguments, *keys))
    return next(filter(None, values), "")


@dataclass
class _Mistakes:
    """Flags that the command does not have."""

    problems: list[Problem] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)  # "lr=1": "--lr 1"
    misplaced: dict[str, tuple[str, str]] = field(default_factory=dict)  # "--src A": ("src", "A")

    def __bool__(self) -> bool:
        return bool(self.problems or self.settings or self.misplaced)


def parse_arguments(
    argv: Sequence[str],
    usage: Usage,
    check: Callable[[Arguments], Any] = lambda arguments: arguments,
    check_settings: Callable[[Arguments], object] = lambda arguments: None,
) -> Any:
    """Separate flags from other arguments and return what `check` returns for them.

    `check_settings`, which takes seconds, is called only to list further problems. Raises
    RecipeError with a correction for each mistake, and with the problems of both checks.
    """
    arguments, mistakes = _separate_flags(argv, usage)
    errors = ErrorCollector()
    for flag, value in arguments.flags.items():
        with errors:
            _check_flag(flag, value, usage)
    of_flags = errors.problems
    with errors:
        _check_count(arguments.positional, usage)
        result = check(arguments)
    if not (mistakes or errors.problems):
        return result
    with errors:
        check_settings(arguments)
    if not mistakes and not of_flags:
        errors.raise_if_any()
    wrong_flags = {problem.key for problem in of_flags}
    others = [problem for problem in errors.problems if problem.key not in wrong_flags]
    problems = _explain_mistakes(mistakes, others + of_flags, arguments, usage)
    error_class = RecipeError if mistakes else errors.error_class
    raise error_class(sorted(problems, key=lambda problem: _find_position(problem.key, argv)))


def _separate_flags(argv: Sequence[str], usage: Usage) -> tuple[Arguments, _Mistakes]:
    """Return the arguments, which include corrections of wrong flags, and the wrong flags."""
    flags = dict[str, str]()
    positional = list[str]()
    mistakes = _Mistakes()
    ahead = deque(argv)
    while ahead:
        argument = _HYDRA_FLAGS.get(typed := ahead.popleft(), typed)
        name, equals, value = argument.partition("=")
        if meant := find_plain_flag(argument, usage):
            clause = "must be written as a flag"
            mistakes.problems.append(Problem(argument, None, clause, " ".join(meant)))
            flags.setdefault(*meant)
        elif not argument.startswith("-") or argument == "-":
            positional.append(argument)
        elif name not in usage.placeholders:
            value = value if equals else _take_value(ahead)
            typed = argument if equals else f"{name} {value}".strip()
            if is_argument(to_key(name), usage):
                mistakes.misplaced[typed] = to_key(name), value
            elif problem := explain_flag(name, value, usage, argv):
                mistakes.problems.append(problem._replace(key=typed))
                # assume the suggested flag, so that it is not also reported as missing
                flag, *words = shlex.split("".join(problem.corrections[:1])) or [""]
                if flag in usage.placeholders:
                    flags[flag] = flags.get(flag) or " ".join(words)
            else:
                positional.append(name_setting(name, value, usage))
                mistakes.settings[positional[-1]] = typed
        elif usage.placeholders[name]:
            is_next = not equals and ahead and not _is_flag(ahead[0])
            flags[name] = (ahead.popleft() if is_next else value) or flags.get(name, "")
        elif equals:
            mistakes.problems.append(Problem(argument, None, f"takes no value: {name}"))
        else:
            flags[name] = ""
    spaced, positional = _join_spaced(positional, usage)
    mistakes.problems += spaced
    for key, value in sorted(
        mistakes.misplaced.values(), key=lambda flag: flag[0] not in RUN_FLAGS
    ):
        add_argument(key, value, usage, positional)
    return Arguments(flags, positional, " ".join(usage.command)), mistakes


def _check_flag(flag: str, value: str, usage: Usage) -> None:
    """Raise RecipeError if a flag lacks its value, or if its output file cannot be written."""
    form = usage.placeholders[flag]
    if form and not value:
        raise RecipeError([explain_missing_value(flag, usage)])
    if form.startswith("FILE"):
        check_output_file(flag, value, form.removeprefix("FILE"))


def _explain_mistakes(
    mistakes: _Mistakes, others: list[Problem], arguments: Arguments, usage: Usage
) -> list[Problem]:
    """Return the problems of wrong flags and `others`, those of other arguments, each once."""
    problems = [_add_value_problem(problem, others) for problem in mistakes.problems]
    problems += explain_settings(mistakes.settings, usage, others)
    if mistakes.misplaced:
        fix: str = Hint(usage.line)
        if not problems:
            typed = [word for item in arguments.flags.items() for word in item if word]
            fix = Command.of(*usage.command, *arguments.positional, *typed)
        key, *more = mistakes.misplaced
        clause = f"{'are not flags' if more else 'is not a flag'} here"
        problems.append(Problem(key, None, clause, fix, typed=" ".join(mistakes.misplaced)))
    return problems


def _add_value_problem(problem: Problem, others: list[Problem]) -> Problem:
    """Return the problem of a flag, merged with the problem of its value, if `others` has one."""
    flag = "".join(problem.corrections[:1]).partition(" ")[0]
    for other in others:
        if other.key == flag != "" and (other.corrections or other.kind is Kind.UNUSED):
            others.remove(other)
            fix = tuple(map(other.format_fix, other.advice))
            return other._replace(key=problem.key, value=None, fix=fix, typed=problem.key)
    return problem


def _check_count(positional: Sequence[str], usage: Usage) -> None:
    """Raise RecipeError with a command that works if there are too few or many arguments."""
    least, most = usage.positional
    if least <= len(positional) <= most:
        return
    newest = next(iterate_newest_runs(Path("runs")), None)
    has_run = newest and (usage.command[-1] == "watch" or is_running(newest))
    missing = "data=" if has_run and usage.positional_text == "one run" else "last|data="
    needs_files = re.search(missing, usage.example)  # files that this machine may lack
    fix: str = Hint(usage.line)
    if not needs_files and len(positional) < least:
        fix = Command.of(*usage.command, *positional, *usage.example.split()[2:][len(positional) :])
    words = [word for word in positional if "=" not in word][:most]
    fix = Command.of(*usage.command, *words) if len(words) >= least else fix
    typed = shlex.join([usage.command[-1], *positional])
    raise RecipeError.of("COMMAND", typed, f"needs {usage.positional_text}", fix)


def _find_position(key: str, argv: Sequence[str]) -> int:
    """Return the position of the argument that a problem is about, or the number of arguments."""
    word = key if key in argv else key.partition(" ")[0]
    return argv.index(word) if word in argv else len(argv)


def _is_flag(text: str) -> bool:
    """Return whether an argument is a flag, and not a negative number."""
    return bool(re.match("-[^0-9.]", text))


def _take_value(ahead: deque[str]) -> str:
    """Take the value of an unknown flag, or several numbers, from the next arguments, or ""."""
    if not ahead or _is_flag(ahead[0]) or "=" in ahead[0]:
        return ""
    value = ahead.popleft()
    while ahead and all(map(_SIGNED_NUMBER.fullmatch, (value.rpartition(",")[2], ahead[0]))):
        value += f",{ahead.popleft()}"  # --opt-betas 0.9 0.95
    return value


def name_as_typed(problem: Problem, argv: Sequence[str]) -> Problem:
    """Return a problem with the argument that caused it, and with short paths.

    A setting that no argument changes gets its short name.
    """
    if (here := os.getcwd()) != "/":
        problem = problem.replace_text(f"{here}/", "")
    if problem.typed or problem.where:
        return problem
    value = "" if problem.value is None else str(problem.value)
    if problem.key.startswith("-"):
        forms = (f"{problem.key}={value}", f"{problem.key} {value}")
        matches = (form for form in forms if value and f" {form} " in f" {' '.join(argv)} ")
        return problem._replace(typed=next(matches, ""))
    if problem.key == "recipe" and value and value in argv:
        return problem._replace(key="NAME")
    arguments = [argument for argument in argv if problem.key in list_keys(argument)]
    if not arguments:
        return problem._replace(key=find_short_name(problem.key))
    name, _, typed = arguments[-1].partition("=")
    is_one_of_several = "[" not in typed and value in typed.split(",")
    if "," not in typed or (value in typed and not is_one_of_several):
        return problem._replace(typed=arguments[-1])
    return problem._replace(key=name)


def _join_spaced(arguments: list[str], usage: Usage) -> tuple[list[Problem], list[str]]:
    """Return a problem for each path with spaces, and for each setting with spaces around "=".

    Also returns the arguments with these settings and paths joined.
    """
    problems = list[Problem]()
    joined = list[str]()
    ahead = deque(arguments)
    while ahead:
        argument = ahead.popleft()
        pair = f"{argument} {ahead[0] if ahead else '='}"
        is_run = not joined and usage.opens_network
        names = (*SHORT_NAMES, "nodes") if "--for" in usage.placeholders else SHORT_NAMES
        is_short = usage.settings and not is_run and argument in names
        split = r"[\w.]+ =*[^=]+" if is_short else r"[\w.]+([=:]+ =*| =+)[^=]+"
        count = words = 0 if is_run else _count_words_of_path(argument, ahead)
        if not words and re.fullmatch(split, pair):  # lr= 1, lr =1, lr 1
            count = 1
        elif not words and len(ahead) > 1 and re.fullmatch(r"[\w.]+ =", pair):  # lr = 1
            count = 2
        typed = [argument, *(ahead.popleft() for _ in range(count))]
        while "=" in argument and typed[-1].endswith(",") and ahead and "=" not in ahead[0]:
            typed.append(ahead.popleft())  # lr=0.1, 0.2
        joined.append(text := " ".join(typed))
        if words:  # data=My Photos
            clause = Statement("a path with spaces needs quotes")
            problems.append(Problem(text, None, clause, shlex.quote(text)))
        elif typed[1:]:
            joined[-1] = re.sub(r"^([\w.]+)[ =:]+", r"\1=", text).replace(", ", ",")
            problems.append(Problem(text, None, WRITTEN, shlex.quote(joined[-1])))
    return problems, joined


def _count_words_of_path(argument: str, ahead: Sequence[str]) -> int:
    """Return how many of the next arguments continue a path that was split at its spaces."""
    start = argument.partition("=")[2] or argument
    ends = range(0 if os.path.lexists(start) else len(ahead), 0, -1)
    return next((n for n in ends if os.path.exists(" ".join([start, *[*ahead][:n]]))), 0)
