"""Explain flags that a command does not have: flags of other programs, settings and arguments."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from resnet_recipes.base.errors import Change, Command, Fix, Hint, Kind, Problem, Statement, Value
from resnet_recipes.base.model_config import LIBRARY, NETWORKS
from resnet_recipes.base.names import SHORT_NAMES, find_short_name, list_keys
from resnet_recipes.base.suggestions import (
    ARGUMENT_FLAGS,
    FLAGS,
    FOREIGN_VALUES,
    IMAGE_FLAGS,
    JOB_FLAGS,
    RUN_FLAGS,
    SETTINGS_HELP,
    TRAIN_FLAGS,
    TRANSLATIONS,
    Translation,
    apply_translation,
    find_closest,
    translate,
)
from resnet_recipes.command_line.usage import Usage
from resnet_recipes.jobs.lookup import LIST, list_choices

#: Names without a dot that a recipe accepts.
_PLAIN_NAMES = (*SHORT_NAMES, "max_duration", "optimizer", "recipe", "schedule", "seed")

WRITTEN = Statement("settings are written key=value")


def to_key(flag: str) -> str:
    """Return a flag in the spelling of a setting."""
    return flag.lstrip("-").replace("-", "_")


def find_plain_flag(argument: str, usage: Usage) -> list[str]:
    """Return the flag and value that an argument without dashes means, such as time=2h, or []."""
    name, _, value = argument.partition("=")
    if usage.takes_recipe and value and usage.placeholders.get(f"--{name}") and name != "resume":
        return [f"--{name}", value]
    engine = FOREIGN_VALUES["--for"].get(argument) if "--for" in usage.placeholders else None
    return ["--for", engine.text] if engine else []


def explain_missing_value(flag: str, usage: Usage) -> Problem:
    """Return the problem that a flag has no value, with a value that works or its description."""
    value = usage.placeholders[flag]
    if value == "RUN":
        run = next(iter(list_choices(flag)), "")
        resume = f"{flag} {run}" if flag != "--resume" else Command(f"resnet-train {flag} {run}")
        return Problem(flag, None, "needs a run", resume if run else LIST)
    if value.startswith("FILE."):
        stem = "images" if flag == "--images" else usage.command[-1]
        return Problem(flag, None, "needs a file name", f"{flag} {stem}{value[4:]}")
    hint = Hint(f"{flag} {value}   {usage.flags[f'{flag} {value}']}")
    return Problem(flag, None, "needs a value", hint)


def explain_flag(flag: str, value: str, usage: Usage, argv: Sequence[str]) -> Problem | None:
    """Return a problem with a suggestion, unless the unknown flag may be a setting.

    The command then checks this setting with the others.
    """
    typed = f"{flag} {value}".strip()
    if usage.takes_recipe and to_key(flag) in TRAIN_FLAGS and "--dry-run" not in usage.placeholders:
        return Problem(typed, None, "is a flag of resnet-train", kind=Kind.UNUSED)
    fix = _translate_job_flag(flag, value, usage, argv) or _translate_flag(flag, value, usage)
    has_settings = usage.takes_recipe or usage.opens_network
    if not fix and not (has_settings and translate(flag, value)):
        fix = _find_similar_flag(flag, value, usage)
    may_be_setting = "--network" in usage.placeholders and to_key(flag) in TRANSLATIONS
    unknown = Problem(typed, None, "unknown flag", fix, kind=Kind.UNKNOWN)
    if fix or not (usage.settings or may_be_setting):
        return unknown._replace(valid=() if fix else (*usage.placeholders, "--help"))
    return _explain_foreign(unknown, to_key(flag), value, usage)


def _translate_job_flag(flag: str, value: str, usage: Usage, argv: Sequence[str]) -> Fix:
    """Return the fix for a flag of Slurm or another engine, or ()."""
    ours = JOB_FLAGS.get(to_key(flag)) if "--for" in usage.placeholders else None
    if not ours or (ours.words and not value):
        return ()
    if not (ours.words or {"slurm", "--for=slurm"} & {*argv}):
        ours = JOB_FLAGS["image"]  # sbatch only starts Slurm scripts
    count = re.sub(r"^.*:|^.*\D.*$", "", value) or "1"  # --gres=gpu:a100:2
    typed = f"{flag} {value}".strip()
    text, note = (
        part.format(shlex.quote(value), count=count, flag=typed) for part in (ours.text, ours.note)
    )
    return text, Hint(note)


def _translate_flag(flag: str, value: str, usage: Usage) -> Fix:
    """Return the fix for a flag of another program, or ()."""
    key = to_key(flag)
    if key == "version":
        return Command("resnet-recipes --version")
    if not value and (off := re.fullmatch(r"-methods\.(\w+)", flag)):
        return f"'~methods.{off[1]}'"
    for ours in ("--to", "--for", "--dtype", "--sort"):
        if ours in usage.placeholders and key in FOREIGN_VALUES[ours]:
            return f"{ours} {FOREIGN_VALUES[ours][key].text}"
    if value == "json" and "--json" in usage.placeholders:
        return "--json"
    ours = _find_flag(key, value, usage.placeholders)
    if ours and usage.placeholders[ours] and not value:
        return explain_missing_value(ours, usage).fix
    return f"{ours} {value}".strip() if ours else ()


def _find_flag(key: str, value: str, takes: Mapping[str, str]) -> str:
    """Return our flag for another program's flag; among several, the flag for that file ending."""
    ours = [flag for flag in (FLAGS[key].words if key in FLAGS else ()) if flag in takes]
    ending = Path(value).suffix
    fitting = [flag for flag in ours if ending and takes[flag].endswith(ending)]
    return next(iter(fitting or ours), "")


def _find_similar_flag(flag: str, value: str, usage: Usage) -> str:
    """Return the flag with a similar name, or the only flag that starts with it, and its value."""
    forms = usage.placeholders
    flags = {to_key(name): name for name in (*forms, "--help")}
    started = [name for name in forms if name.startswith(flag) and (value or not forms[name])]
    near = flags.get(find_closest(to_key(flag), flags)) or (started[0] if len(started) == 1 else "")
    form = forms.get(near, "")
    argument = form if form in ("", "FOLDER") else value or form
    return near and f"{near} {argument}".strip()


def _explain_foreign(unknown: Problem, key: str, value: str, usage: Usage) -> Problem | None:
    """Return a problem with the meaning of another tool's flag.

    None if it has none, if only composing a recipe can check its value, or without a recipe.
    """
    template = TRANSLATIONS.get(key, Translation(("recipe={}",)))
    is_flag = any(word in usage.placeholders for word in template.words[:1])
    if not usage.takes_recipe or (template.takes_value and not is_flag):
        return None
    translation = translate(key, value)
    return translation and apply_translation(unknown, translation)


def name_setting(flag: str, value: str, usage: Usage) -> str:
    """Return the setting that an unknown flag means."""
    key = to_key(flag)
    text = TRANSLATIONS[key].text if key in TRANSLATIONS else ""
    form = r"[\w.]+={}" if usage.takes_recipe else "data={}"
    # weights keep their flag: a resumed run has its own, and a missing file would count twice
    is_setting = re.fullmatch(form, text) and not text.startswith("model.weights")
    return text.format(value) if is_setting else f"{key}={value}"


def explain_settings(
    settings: Mapping[str, str], usage: Usage, wrong: list[Problem]
) -> Iterator[Problem]:
    """Yield the problems of settings typed as flags, then the problems of other arguments."""
    for argument, flag in settings.items():
        keys = list_keys(argument)
        about_flag = (item for item in wrong if item.key in keys and item.kind is not Kind.ABSENT)
        problem = next(about_flag, None)
        wrong = [item for item in wrong if item is not problem]
        if problem and (problem.kind is Kind.UNKNOWN or not argument.endswith("=")):
            yield _adapt_problem(problem, flag, usage)
        else:
            yield _suggest_setting(argument, flag, usage)
    yield from wrong


def _adapt_problem(problem: Problem, flag: str, usage: Usage) -> Problem:
    """Return a problem of a setting that names the flag that the user typed instead."""
    if usage.opens_network:
        problem = problem.replace_text("resnet-train ...", f"{' '.join(usage.command)} ...")
    kind, clause, valid = problem.kind, problem.clause, problem.valid
    fixes = (_adapt_fix(_name_option(problem, fix), usage) for fix in problem.corrections)
    hints = (_adapt_fix(hint, usage) for hint in problem.advice if isinstance(hint, Hint))
    advice = tuple(filter(None, fixes))
    fix = (*advice, *hints)
    if kind is Kind.UNKNOWN and not (valid and usage.takes_recipe) and {*fix} <= {SETTINGS_HELP}:
        fix = ()  # nothing is similar
        valid = (*usage.placeholders, "--help")
    elif kind is Kind.UNKNOWN and not fix:
        fix = (Hint(f"{find_short_name(problem.key)}=NAME"),)
    if kind is Kind.UNKNOWN or problem.corrections:
        kind, clause = Kind.UNKNOWN, "unknown flag"
    elif kind is not Kind.UNUSED:
        fix = fix or (Hint(WRITTEN),)
    return Problem(flag, None, clause, fix, valid, kind, typed=flag, where=problem.where)


def _name_option(problem: Problem, fix: str) -> str:
    """Return a fix; an option or a recipe that was typed without its key gets the key."""
    if problem.typed == problem.value and not isinstance(fix, Change | Command):
        problem = problem._replace(typed="")
        fix = Value(fix)
    return problem.format_fix(fix)


def _adapt_fix(fix: str, usage: Usage) -> str:
    """Return a fix for the command that the user typed; "" if it is a flag of another command."""
    flag = fix.partition(" ")[0]
    if not flag.startswith("-") or flag in usage.placeholders:
        return fix
    return Command(f"resnet-train {fix}") if flag == "--resume" else ""


def _suggest_setting(argument: str, flag: str, usage: Usage) -> Problem:
    """Return the problem that a flag is unknown, with the setting that it may mean."""
    fix = Hint(f"{argument}VALUE") if argument.endswith("=") else shlex.quote(argument)
    translation = TRANSLATIONS.get(to_key(re.split("[ =]", flag)[0]), Translation(()))
    name = argument.partition("=")[0]
    has_settings = usage.takes_recipe or usage.opens_network
    # the settings of a run that does not exist were not checked
    is_known = not has_settings or "." in name or name in _PLAIN_NAMES
    valid = () if is_known else (*usage.placeholders, "--help")
    advice = (fix, Hint(translation.note)) if is_known else ()
    return Problem(flag, None, "unknown flag", advice, valid, Kind.UNKNOWN)


def is_argument(key: str, usage: Usage) -> bool:
    """Return whether a foreign flag means an argument: RUN, its images, SRC or DST."""
    is_target = key in FLAGS and "--out" in FLAGS[key].words
    if "DST" in usage.line:
        return is_target or key in IMAGE_FLAGS or name_setting(key, "", usage) == "data="
    names = RUN_FLAGS if usage.opens_network else ARGUMENT_FLAGS
    takes_run = usage.opens_network or ("RUN" in usage.line and not usage.settings)
    return (takes_run and key in names) or (usage.takes_images and key in IMAGE_FLAGS)


def add_argument(key: str, value: str, usage: Usage, words: list[str]) -> None:
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
