"""Parse the arguments of a command, and explain wrong ones."""

import os
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resnet_recipes.base.architecture import LIBRARY, NETWORKS
from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import (
    Change,
    Command,
    Fix,
    Hint,
    Kind,
    Problem,
    RecipeError,
    Statement,
    Value,
)
from resnet_recipes.base.names import SHORT_NAMES, find_short_name, list_keys
from resnet_recipes.base.paths import parse_path
from resnet_recipes.base.suggestions import (
    FLAGS,
    FOREIGN_FORMATS,
    FOREIGN_VALUES,
    IMAGE_FLAGS,
    JOB_FLAGS,
    MEANINGS,
    RUN_FLAGS,
    SETTINGS_HELP,
    Translation,
    apply_translation,
    find_closest,
    translate,
)
from resnet_recipes.command_line.output_files import find_ending_problems, require_folder
from resnet_recipes.command_line.usage import Usage
from resnet_recipes.jobs.lookup import LIST, list_choices

#: Flags in the Hydra spelling, with ours.
HYDRAS = {"--multirun": "-m", "--cfg=job": "--cfg"}

_WRITTEN = Statement("settings are written key=value")

_NUMBER = re.compile(r"-?[0-9.]+(e-?[0-9]+)?")

#: Keys of the image folder, of the number of GPUs, of the budget, and of the name of a run.
DATA_KEYS, GPUS_KEYS = ("data", "data.root"), ("gpus", "launch.gpus")
BUDGET_KEYS, NAME_KEYS = ("budget", "launch.budget"), ("run", "run.name")

#: The start of an argument inside another argument: a flag or a setting.
_SEVERAL = re.compile(rf"\s(--[a-z]|({'|'.join(SHORT_NAMES)}|[a-z_]+\.[a-z_.]+)=)")


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


#: A check that returns arguments, completed, or raises RecipeError.
Check = Callable[[Arguments], Arguments]


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


def parse_arguments(
    argv: Sequence[str],
    usage: Usage,
    check: Check = lambda arguments: arguments,
    check_settings: Callable[[Arguments], object] = lambda arguments: None,
) -> Arguments:
    """Separate flags from other arguments, and return what `check` returns for them.

    `check_settings`, which takes seconds, is called only if something else is wrong. Raises
    RecipeError with a correction for each mistake, and with the problems of both checks.
    """
    arguments, problems, settings, misplaced = _parse(argv, usage)
    wrong_flags, others = {problem.key for problem in problems}, ErrorCollector()
    for flag, name in arguments.flags.items():
        with others:
            if usage.values[flag].startswith("FILE") and flag not in wrong_flags:
                require_folder(flag, name)
    with others:
        _check_count(arguments.positional, usage)
        arguments = check(arguments)
    with others:
        if problems or settings or misplaced or others.problems:
            check_settings(arguments)
    if not (problems or settings or misplaced):
        others.raise_if_any()
        return arguments
    other_problems = [each for each in others.problems if each.key not in wrong_flags]
    problems = [_add_value_problem(each, other_problems) for each in problems]
    problems += _explain_flags(settings, usage, other_problems)
    if misplaced:
        words = [each for each in arguments.positional if each not in settings]
        fix = _complete_command(arguments.flags, words, problems, usage)
        key, *more = misplaced
        clause = f"{'are not flags' if more else 'is not a flag'} here"
        problems.append(Problem(key, None, clause, fix, typed=" ".join(misplaced)))
    raise RecipeError(sorted(problems, key=lambda each: _find_place(each.key, argv)))


def _parse(
    argv: Sequence[str], usage: Usage
) -> tuple[Arguments, list[Problem], dict[str, str], dict[str, tuple[str, str]]]:
    """Return the arguments, their problems, and what was typed as unknown flags.

    These are settings, and other arguments such as RUN.
    """
    flags, settings, misplaced = dict[str, str](), dict[str, str](), dict[str, tuple[str, str]]()
    positional, problems, ahead = list[str](), list[Problem](), deque(argv)
    while ahead:
        argument = HYDRAS.get(typed := ahead.popleft(), typed)
        name, equals, value = argument.partition("=")
        if usage.takes_recipe and _SEVERAL.search(argument):
            clause = "is a single argument; remove the quotes"
            problems.append(Problem(argument, None, clause, argument))
            ahead.extendleft(reversed(argument.split()))
        elif meant := _find_plain_flag(argument, usage):
            problems.append(Problem(argument, None, "must be written as a flag", " ".join(meant)))
            flags.setdefault(*meant)
        elif not argument.startswith("-") or argument == "-":
            positional.append(argument)
        elif name not in usage.values:
            values = [value] if equals else _take_values(ahead)
            typed = argument if equals else " ".join([name, *values]).strip()
            if _is_argument(_to_key(name), usage):
                misplaced[typed] = _to_key(name), " ".join(values)
                continue
            unknown = _explain_unknown(name, " ".join(values), usage, argv)
            if problem := unknown or _explain_foreign(name, values, usage):
                problems.append(problem._replace(key=typed))
                # go on as if the suggestion were typed, which is then not missing
                flag, *words = shlex.split("".join(problem.fixes[:1])) or [""]
                if flag in usage.values:
                    flags[flag] = flags.get(flag) or " ".join(words)
            else:
                positional.append(_format_setting(name, values))
                settings[positional[-1]] = typed
        elif usage.values[name]:
            is_next = not equals and ahead and not re.match("-[^0-9.]", ahead[0])
            flags[name] = (ahead.popleft() if is_next else value) or flags.get(name, "")
        elif equals:
            problems.append(Problem(argument, None, f"takes no value: {name}"))
        else:
            flags[name] = ""
    for flag, value in flags.items():
        form = usage.values[flag]
        if form and not value:
            problems.append(_explain_missing_value(flag, usage))
        elif form.startswith("FILE"):
            problems += find_ending_problems(flag, value, form.removeprefix("FILE"))
    spaced, joined = _join_spaced(positional, usage)
    for key, value in sorted(misplaced.values(), key=lambda each: each[0] not in RUN_FLAGS):
        _add_argument(key, value, usage, joined)
    arguments = Arguments(flags, joined, " ".join(usage.command))
    return arguments, [*problems, *spaced], settings, misplaced


def _find_plain_flag(argument: str, usage: Usage) -> list[str]:
    """Return the flag and value that an argument without dashes means, such as time=2h, or []."""
    name, _, value = argument.partition("=")
    if usage.takes_recipe and value and usage.values.get(f"--{name}") and name != "resume":
        return [f"--{name}", value]
    engine = FOREIGN_VALUES["--for"].get(argument) if "--for" in usage.values else None
    return ["--for", engine.text] if engine else []


def _add_value_problem(problem: Problem, others: list[Problem]) -> Problem:
    """Return the problem of a wrong flag; if its value is wrong, too, take that from `others`."""
    flag = "".join(problem.fixes[:1]).partition(" ")[0]
    for each in others:
        if each.key == flag != "" and (each.fixes or each.kind is Kind.UNUSED):
            others.remove(each)
            fix = tuple(map(each.format_fix, each.advice))
            return each._replace(key=problem.key, value=None, fix=fix, typed=problem.key)
    return problem


def _check_count(positional: Sequence[str], usage: Usage) -> None:
    """Raise RecipeError with the example of a command if there are too few or many arguments."""
    if usage.positional[0] <= len(positional) <= usage.positional[1]:
        return
    needs_files = re.search("last|data=", usage.example)  # files that this machine may lack
    fix: str = Hint(usage.line)
    if not needs_files and len(positional) < usage.positional[0]:
        fix = Command.of(*usage.command, *positional, *usage.example.split()[2:][len(positional) :])
    typed = shlex.join([usage.command[-1], *positional])
    raise RecipeError.of("COMMAND", typed, f"needs {usage.takes}", fix)


def _find_place(key: str, argv: Sequence[str]) -> int:
    """Return the position of the argument that a problem is about, or the number of arguments."""
    word = key if key in argv else key.partition(" ")[0]
    return argv.index(word) if word in argv else len(argv)


def _explain_missing_value(flag: str, usage: Usage) -> Problem:
    """Return the problem of a flag without a value, with a value that works or its meaning."""
    value = usage.values[flag]
    if value == "RUN":
        run = next(iter(list_choices(flag).values()), "")
        return Problem(flag, None, "needs a run", f"{flag} {run}" if run else LIST)
    if value.startswith("FILE."):
        file = f"{usage.command[-1]}{value[4:]}"
        return Problem(flag, None, "needs a file name", f"{flag} {file}")
    hint = Hint(f"{flag} {value}   {usage.flags[f'{flag} {value}']}")
    return Problem(flag, None, "needs a value", hint)


def _explain_foreign(flag: str, values: Sequence[str], usage: Usage) -> Problem | None:
    """Return the problem of another tool's flag, with its meaning here.

    None if only composing the recipe, which takes seconds, can check its value.
    """
    key, value = _to_key(flag), ",".join(values)
    template = MEANINGS.get(key, Translation(("recipe={}",)))
    is_number = value.replace(".", "", 1).isdecimal()
    is_safe = is_number and template.text.removesuffix("={}") in (*SHORT_NAMES, "seed")
    if not usage.takes_recipe or (template.takes_value and not is_safe):
        return None
    typed = " ".join([flag, *values]).strip()
    translation = translate(key, value)
    unknown = Problem(typed, None, "unknown flag", kind=Kind.UNKNOWN)
    return translation and apply_translation(unknown, translation)


def _format_setting(flag: str, values: Sequence[str]) -> str:
    """Return the setting that an unknown flag means."""
    key = _to_key(flag)
    meant = MEANINGS[key].text.removesuffix("={}") if key in MEANINGS else key
    return f"{meant if meant in ('recipe', 'data') else key}={','.join(values)}"


def _take_values(ahead: deque[str]) -> list[str]:
    """Take the value of an unknown flag, or several numbers, from the next arguments, or [""]."""
    if not ahead or ahead[0].startswith("-") or "=" in ahead[0]:
        return [""]
    values = [ahead.popleft()]
    while ahead and _NUMBER.fullmatch(values[-1]) and _NUMBER.fullmatch(ahead[0]):
        values.append(ahead.popleft())  # --opt-betas 0.9 0.95
    return values


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
    name, _, typed = (
        arguments[-1].partition("=") if arguments else (find_short_name(problem.key), "", "")
    )
    # whether a sweep has this value
    is_one_of_several = "[" not in typed and value in typed.split(",")
    if arguments and ("," not in typed or (value in typed and not is_one_of_several)):
        return problem._replace(typed=arguments[-1])
    return problem._replace(key=name) if name != problem.key else problem


def _explain_flags(
    settings: Mapping[str, str], usage: Usage, wrong: list[Problem]
) -> Iterator[Problem]:
    """Yield the problems of settings typed as flags, then the problems of other arguments."""
    for argument, flag in settings.items():
        keys = list_keys(argument)
        about_flag = (one for one in wrong if one.key in keys and one.kind is not Kind.ABSENT)
        problem = next(about_flag, None)
        wrong = [one for one in wrong if one is not problem]
        if problem and (problem.kind is Kind.UNKNOWN or not argument.endswith("=")):
            yield _adapt_problem(problem, flag, usage)
        else:
            yield _suggest_setting(argument, flag, usage)
    yield from wrong


def _adapt_problem(problem: Problem, flag: str, usage: Usage) -> Problem:
    """Return the problem of a setting as a problem of the flag that was typed instead."""
    if usage.opens_network:
        problem = problem.replace_text("resnet-train ...", f"{' '.join(usage.command)} ...")
    kind, clause, valid = problem.kind, problem.clause, problem.valid
    fixes = (_adapt_fix(_name_option(problem, fix), usage) for fix in problem.fixes)
    hints = (_adapt_fix(each, usage) for each in problem.advice if isinstance(each, Hint))
    advice = tuple(filter(None, fixes))
    fix = (*advice, *hints)
    if kind is Kind.UNKNOWN and not valid and {*fix} <= {SETTINGS_HELP}:  # nothing is similar
        fix, valid = (), (*usage.values, "--help")
    elif advice:
        valid = ()
    if kind is Kind.UNKNOWN or problem.fixes:
        kind, clause = Kind.UNKNOWN, "unknown flag"
    elif kind is not Kind.UNUSED:
        fix = fix or (Hint(_WRITTEN),)
    return Problem(flag, None, clause, fix, valid, kind, typed=flag, where=problem.where)


def _suggest_setting(argument: str, flag: str, usage: Usage) -> Problem:
    """Return the problem of a flag that may be a setting."""
    fix: Fix = Hint(f"{argument}VALUE") if argument.endswith("=") else shlex.quote(argument)
    _, key, *_ = list_keys(argument)
    has_settings = usage.takes_recipe or usage.opens_network
    # the settings of a run that does not exist were not checked
    short_keys = [each for name in SHORT_NAMES for each in list_keys(name)]
    is_known = not has_settings or "." in key or key in (*short_keys, "recipe", "seed")
    valid = () if is_known else (*usage.values, "--help")
    return Problem(flag, None, "unknown flag", fix if is_known else (), valid, Kind.UNKNOWN)


def _name_option(problem: Problem, fix: str) -> str:
    """Return a fix; an option or a recipe that was typed without its key gets the key."""
    if problem.typed == problem.value and not isinstance(fix, Change | Command):
        problem, fix = problem._replace(typed=""), Value(fix)
    return problem.format_fix(fix)


def _adapt_fix(fix: str, usage: Usage) -> str:
    """Return a fix for the command that the user typed; "" if it is a flag of another command."""
    flag = fix.partition(" ")[0]
    if not flag.startswith("-") or flag in usage.values:
        return fix
    return Command(f"resnet-train {fix}") if flag == "--resume" else ""


def _explain_unknown(name: str, value: str, usage: Usage, argv: Sequence[str]) -> Problem | None:
    """Return the problem of an unknown flag, with a suggestion.

    None if the flag may be a setting.
    """
    typed, key = f"{name} {value}".strip(), _to_key(name)
    takes = usage.values
    translation = translate(name, value) if usage.takes_recipe or usage.opens_network else None
    flags = {_to_key(flag): flag for flag in (*takes, "--help")}
    started = [flag for flag in takes if flag.startswith(name) and (value or not takes[flag])]
    near = flags.get(find_closest(key, flags)) or (started[0] if len(started) == 1 else "")
    default = takes.get(near, "")
    argument = default if default in ("", "FOLDER") else value or default
    meant = near and f"{near} {argument}".strip()
    fix: Fix = ()
    if key == "version":
        fix = Command("resnet-recipes --version")
    elif "--for" in takes and (ours := JOB_FLAGS.get(key)) and (value or not ours.words):
        is_known = ours.words or {"slurm", "--for=slurm"} & {*argv}
        ours = ours if is_known else JOB_FLAGS["image"]  # sbatch only starts Slurm scripts
        count = re.sub(r"^.*:|^.*\D.*$", "", value) or "1"  # --gres=gpu:a100:2
        texts = (ours.text, ours.note)
        text, note = (each.format(shlex.quote(value), count=count, flag=typed) for each in texts)
        fix = text, Hint(note)
    elif off := re.fullmatch(r"-methods\.(\w+)", typed):
        fix = f"'~methods.{off[1]}'"
    elif "--to" in takes and key in FOREIGN_FORMATS:
        fix = f"--to {FOREIGN_FORMATS[key].text}"
    elif value == "json" and "--json" in takes:
        fix = "--json"
    elif flag := _find_flag(key, value, takes):
        is_complete = value or not takes[flag]
        fix = f"{flag} {value}".strip() if is_complete else _explain_missing_value(flag, usage).fix
    elif meant and not translation:
        fix = meant
    elif usage.settings:
        return None
    valid = () if fix else (*takes, "--help")
    return Problem(typed, None, "unknown flag", fix, valid, Kind.UNKNOWN)


def _is_argument(key: str, usage: Usage) -> bool:
    """Return whether a foreign flag means an argument: RUN, its images, SRC or DST."""
    is_target = key in FLAGS and "--out" in FLAGS[key].words
    if "DST" in usage.line:
        return is_target or key in IMAGE_FLAGS or _format_setting(key, []) == "data="
    return (usage.opens_network and key in RUN_FLAGS) or (usage.takes_images and key in IMAGE_FLAGS)


def _add_argument(key: str, value: str, usage: Usage, words: list[str]) -> None:
    """Add an argument that was typed as a flag."""
    is_network = value in NETWORKS or LIBRARY.fullmatch(value)
    if key == "model" and is_network and words:
        words.append(f"model.name={value}")
    elif usage.opens_network and key in RUN_FLAGS:
        words.insert(0, value or "last")
    elif value and usage.opens_network:
        words[:] = [*(words or ["last"]), value]
    elif value:
        words.insert(len(words) if key in FLAGS else 0, value)


def _complete_command(
    flags: Mapping[str, str], words: list[str], problems: Sequence[Problem], usage: Usage
) -> Fix:
    """Return the command with the corrections of its problems; its form if one is unknown."""
    flags = dict(flags)
    for problem in problems:
        fix = next(iter(problem.fixes), "")
        parts = [fix] if isinstance(fix, Change | Value) else shlex.split(fix)
        if parts[: len(usage.command)] == usage.command:
            return fix
        if len(parts) == 2 and parts[0] in usage.values:
            flags[parts[0]] = parts[1]
        elif isinstance(fix, Value):
            words = [fix if word == str(problem.value) else word for word in words]
        elif problem.kind is not Kind.UNKNOWN:
            return Hint(usage.line)
        elif len(parts) == 1 and "=" in parts[0]:
            words = [*words, *parts]
    typed = [word for item in flags.items() for word in item if word]
    return Command.of(*usage.command, *words, *typed)


def _find_flag(key: str, value: str, takes: Mapping[str, str]) -> str:
    """Return our flag for another program's flag; among several, the flag for that file ending."""
    ours = [flag for flag in (FLAGS[key].words if key in FLAGS else ()) if flag in takes]
    ending = Path(value).suffix
    fitting = [flag for flag in ours if ending and takes[flag].endswith(ending)]
    return next(iter(fitting or ours), "")


def _to_key(flag: str) -> str:
    """Return a flag in the spelling of a setting."""
    return flag.lstrip("-").replace("-", "_")


def _join_spaced(arguments: list[str], usage: Usage) -> tuple[list[Problem], list[str]]:
    """Return a problem for each path with spaces, and for each setting with spaces around "=".

    Also returns the arguments with these settings and paths joined.
    """
    problems, joined, ahead = list[Problem](), list[str](), deque(arguments)
    while ahead:
        argument = ahead.popleft()
        after = ahead[0] if ahead else "="
        name, value = argument.rstrip("=:"), after.lstrip("=")
        is_run = not joined and usage.opens_network
        names = (*SHORT_NAMES, "nodes") if "--for" in usage.values else SHORT_NAMES
        is_short = usage.settings and not is_run and argument in names
        is_split = value and re.fullmatch(r"[\w.]+", name) and "=" not in value
        if not is_run and (count := _count_words_of_path(argument, ahead)):  # data=My Photos
            joined.append(" ".join([argument, *(ahead.popleft() for _ in range(count))]))
            clause = Statement("a path with spaces needs quotes")
            problems.append(Problem(joined[-1], None, clause, shlex.quote(joined[-1])))
            continue
        if is_split and (name != argument or value != after or is_short):  # lr= 1, lr =1, lr 1
            typed = [argument, ahead.popleft()]
        elif after == "=" and len(ahead) > 1 and re.fullmatch(r"[\w.]+", argument):  # lr = 1
            typed = [argument, ahead.popleft(), ahead.popleft()]
        else:
            joined.append(argument)
            continue
        joined.append(f"{name}={typed[-1].lstrip('=')}")
        problems.append(Problem(" ".join(typed), None, _WRITTEN, shlex.quote(joined[-1])))
    return problems, joined


def _count_words_of_path(argument: str, ahead: Sequence[str]) -> int:
    """Return how many of the next arguments continue a path that was split at its spaces."""
    start = argument.partition("=")[2] or argument
    ends = range(0 if os.path.lexists(start) else len(ahead), 0, -1)
    return next((n for n in ends if os.path.exists(" ".join([start, *[*ahead][:n]]))), 0)
