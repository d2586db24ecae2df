"""Suggest a replacement for a rejected argument, by the meaning of the argument."""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from resnet_recipes import backbones
from resnet_recipes.base.errors import Hint, Kind, Problem, RecipeError, Value, to_text
from resnet_recipes.base.field_types import find_dataclasses, get_field_types
from resnet_recipes.base.model_config import LIBRARY, NETWORKS
from resnet_recipes.base.names import SHORT_NAMES, find_short_name, get_full_name, list_keys
from resnet_recipes.base.suggestions import (
    FOREIGN_VALUES,
    OFF,
    SETTING,
    SETTINGS_HELP,
    TIMM_TRANSLATIONS,
    TRANSLATIONS,
    Translation,
    apply_translation,
    find_misspelled,
    suggest_printing_settings,
    translate,
)
from resnet_recipes.base.suggestions.values import ON, read_time
from resnet_recipes.data.root import find_root_problem
from resnet_recipes.recipe.build import (
    build_recipe,
    find_owners,
    get_setting_type,
    get_setting_types,
)
from resnet_recipes.recipe.hydra_compose import SWEEP, list_points, nest
from resnet_recipes.recipe.library import GROUPS, Library
from resnet_recipes.recipe.overrides import expand, parse

_GPU_IDS = re.compile(r"(?:cuda:)?(\d+(?:,\d+)*),?")
_WEIGHTS_ENDINGS = (".pt", ".pth", ".safetensors")

#: Prefixes that mean "turn a method off", other than ~methods.ema.
_OFF_METHOD = re.compile(r"-*(?:!|-|no[._-])(?:methods\.)?(\w+)(=(?:true|yes|on|1)?)?")


class Context(NamedTuple):
    """The target of command-line arguments: a recipe, or the settings of a trained network."""

    name: str  # "mild"
    before: Callable[[str], object]  # value of a setting without the arguments
    methods: Sequence[str] = ()  # methods that are on
    allowed: Sequence[str] = ()  # settings that may be changed; empty: all
    translations: Mapping[str, Translation] = TRANSLATIONS  # settings by a name in another tool
    chosen: Mapping[str, str] = {}  # the optimizer and the network, by section


def add_suggestion(problem: Problem, arguments: Sequence[str], context: Context) -> Problem:
    """Return the problem of an argument with a suggestion.

    Tries in this order: the meaning of the argument, the fixes of the problem that are valid, the
    list of settings for an unknown name, and the value that the setting has without the argument.
    """
    argument = next((argument for argument in arguments if problem.key in list_keys(argument)), "")
    if not argument or problem.kind is Kind.UNUSED:
        return problem
    problem = _check_sweep_hint(problem, argument, context)
    if translation := _translate(argument, problem, context):
        translation = _fit_to_command(translation, argument, arguments, context)
    if translation and _is_accepted(translation, context):
        translation, wrong = _correct_value(translation, context)
        if not wrong or _is_valid_sweep(translation.text, context):
            return apply_translation(problem, translation)
        if wrong.key != problem.key:
            return _reject_value(problem, wrong)
        problem = problem._replace(fix=wrong.corrections, valid=wrong.valid or problem.valid)
    accepted = tuple(
        fix
        for fix in problem.advice
        if not isinstance(fix, Value) or _is_valid_sweep(f"{problem.key}={fix}", context)
    )
    problem = problem._replace(fix=accepted)
    if accepted or problem.valid:
        return problem
    if problem.kind is Kind.UNKNOWN or not ("=" in argument or argument[0] == "~"):
        return _suggest_settings(problem, argument, context)
    return _show_value_before(problem, argument, context)


def _check_sweep_hint(problem: Problem, argument: str, context: Context) -> Problem:
    """Return a problem without its hint to a sweep if the setting rejects one of the values."""
    without = problem.replace_advice(SWEEP)
    if without is problem or _is_valid_sweep(argument, context):
        return problem
    is_number = re.fullmatch(r"\d{1,3}(,\d{3})+", str(problem.value))  # 2,048
    number = Value(str(problem.value).replace(",", ""))
    return problem._replace(fix=number) if is_number else without


def _fit_to_command(
    translation: Translation, argument: str, arguments: Sequence[str], context: Context
) -> Translation:
    if argument[0] != "~" and translation.text.startswith("~"):
        translation = _turn_off(translation.text[1:], context)
    first, *rest = translation.words or [""]
    others = (word for word in arguments if word != argument)
    typed = {change.key: change.value for word in others for change in expand(word)}
    if first == "model.weights=torchvision":
        if context.translations is TIMM_TRANSLATIONS and "model.weights" not in typed:
            return _translate_to("model.weights", context.chosen["model"])
        if weights := typed.get("model.weights") or context.before("model.weights"):
            return Translation((), f"remove it: model.weights={weights} is set")
    untyped = [word for word in rest if expand(word)[0].key not in typed]
    return translation if untyped == rest else translation._replace(words=(first, *untyped))


def _suggest_settings(problem: Problem, argument: str, context: Context) -> Problem:
    section = argument.lstrip("~").partition("=")[0].rpartition(".")[0]
    siblings = map(get_field_types, find_dataclasses(get_setting_type(section)))
    if names := tuple(dict.fromkeys(chain.from_iterable(siblings))):
        return problem._replace(valid=names)
    everything = SETTINGS_HELP if context.allowed else suggest_printing_settings(context.name)
    return problem._replace(fix=everything)


def _show_value_before(problem: Problem, argument: str, context: Context) -> Problem:
    before = context.before("epochs" if argument.startswith("epochs=") else problem.key)
    name = problem.key.rpartition(".")[2]
    defaults = [getattr(owner(), name) for owner in find_owners(problem.key)]
    value = next((value for value in (before, *defaults) if value is not None), "")
    if value in ("", []) or isinstance(value, dict):
        return problem
    text = to_text(value).replace(", ", ",")
    name = find_short_name(problem.key) if argument[0] == "~" else argument.partition("=")[0]
    clause = "cannot be removed" if argument[0] == "~" else problem.clause
    used = Hint(f"{context.name} uses {shlex.quote(f'{name}={text}')}")
    return problem._replace(clause=clause, fix=Value(text) if before is None else used)


def _turn_off(method: str, context: Context) -> Translation:
    name = method.removeprefix("methods.")
    if name in context.methods:
        return Translation((f"~{method}",))
    return Translation((), f"remove it: {context.name} does not use {name}")


def describe_enabled_methods(recipe: str, methods: Iterable[str]) -> Hint:
    """Return the names of the methods that a recipe uses, as a hint."""
    return Hint(f"{recipe} uses {', '.join(sorted(methods)) or 'no methods'}")


def _is_accepted(translation: Translation, context: Context) -> bool:
    settings = filter(SETTING.fullmatch, translation.words)
    return not context.allowed or all(
        change.key in context.allowed for setting in settings for change in expand(setting)
    )


def _correct_value(
    translation: Translation, context: Context
) -> tuple[Translation, Problem | None]:
    if len(translation.words) > 1 and all(map(SETTING.fullmatch, translation.words)):
        first = translation.words[0]
        # a value that is valid for the first: data.eval_resize=64 is wrong without its eval_size=64
        valid = first[first.index("=") :] if _convert_value(first) == first else None
        words = (
            word if valid and word.endswith(valid) else _convert_value(word)
            for word in translation.words
        )
        return translation._replace(words=tuple(words)), None
    wrong = None
    for _ in range(3):  # such as model=vit_base, model.name=timm:vit_base, and the full name
        first, *rest = translation.words or [""]
        is_setting = SETTING.fullmatch(first) and not rest and not translation.has_placeholder
        wrong = _check_setting(first, context.chosen) if is_setting else None
        if wrong is None:
            break
        better = _translate(first, wrong, context)
        if better is None and wrong.corrections:
            hints = [fix for fix in wrong.advice if isinstance(fix, Hint)]
            better = _read_fix(wrong)._replace(note="".join(hints[:1]))
            if better.text.partition("=")[0] not in list_keys(first):
                # the fix is another setting that this value needs; a later message suggests it
                return translation, None
        if better is None:
            break
        translation = better._replace(note=better.note or translation.note)
    return translation, wrong


def _convert_value(argument: str) -> str:
    wrong = _check_setting(argument)
    values = [fix for fix in wrong.corrections if isinstance(fix, Value)] if wrong else []
    return f"{argument.partition('=')[0]}={values[0]}" if values else argument


def _read_fix(problem: Problem) -> Translation:
    return Translation(tuple(shlex.split(problem.format_fix(problem.corrections[0]))))


def _reject_value(problem: Problem, wrong: Problem) -> Problem:
    setting = find_short_name(wrong.key)
    reason = Hint(f"the setting is {setting}" if wrong.valid else wrong.about(f"{setting}"))
    hints = (hint for hint in wrong.advice if isinstance(hint, Hint))
    return problem._replace(fix=(reason, *hints), valid=wrong.valid)


def _translate_to(key: str, value: str) -> Translation:
    return Translation((f"{key}={value}",))


def _translate(argument: str, problem: Problem, context: Context) -> Translation | None:
    name, equals, value = argument.partition("=")
    off = _OFF_METHOD.fullmatch(argument.lower())
    if off and (method := _find_method(off[1])):
        return _turn_off(method, context)
    if name[:1] in ("+", "~") or not equals:
        return _read_malformed(argument, context)
    setting_type = get_setting_type(get_full_name(name))
    if setting_type is None:
        return _read_misnamed(name, value, context)
    if value.lower() in (*ON, *OFF) and name.startswith("methods."):
        method = ".".join(name.split(".")[:2])
        return _translate_to(method, "{}") if value.lower() in ON else _turn_off(method, context)
    if problem.kind is Kind.UNKNOWN:  # an unknown option of a group
        known = FOREIGN_VALUES.get(name, {})
        return known.get(value.lower() if problem.corrections else find_misspelled(value, known))
    if find_dataclasses(setting_type):
        return _read_section_value(
            name, value, list(get_field_types(find_dataclasses(setting_type)[0])), context
        )
    if translation := _read_gpu_numbers(name, value):
        return translation
    if problem.corrections:
        return _read_fix(problem) if name in ("model.name", "schedule.name") else None
    return _read_several_values(name, value, context)


def _find_method(name: str, choices: Iterable[str] = ()) -> str:
    """Return the setting of a method by its name, which may be misspelled, or ""."""
    every = get_field_types(find_dataclasses(get_setting_types()["methods"])[0])
    method = find_misspelled(name, choices or every)
    return f"methods.{method}" if method else ""


def _read_malformed(argument: str, context: Context) -> Translation | None:
    """Return the setting for an argument without the form key=value."""
    key, _, value = map(str.strip, argument.partition(":"))
    if argument[0] == "+":
        setting = argument.lstrip("+").replace("/", ".", 1)
        if "=" not in setting:
            return _read_malformed(setting, context) if setting else None
        wrong = _check_setting(setting)
        return (wrong and _translate(setting, wrong, context)) or Translation((setting,))
    if argument[0] == "~":
        method = _find_method(argument[1:].removeprefix("methods."), context.methods)
        if not method and argument[1:].startswith("methods."):
            return Translation((), describe_enabled_methods(context.name, context.methods))
        return _turn_off(method, context) if method not in ("", argument[1:]) else None
    if argument in NETWORKS or LIBRARY.fullmatch(argument):
        return _translate_to("model.name", argument)
    if value and value[:2] != "//" and key.replace(".", "").replace("_", "").isalnum():
        return _translate_to(key, value)
    if os.path.isdir(argument):
        problem = find_root_problem(argument)
        meant = problem.fix if problem and isinstance(problem.fix, Value) else argument
        return _translate_to("data", meant)
    if time := read_time(argument):
        return _translate_to("budget", time)
    if method := _find_method(argument.removeprefix("methods.")):
        return _translate_to(method, "{}")
    return translate(argument, "", table=context.translations)


def _read_misnamed(name: str, value: str, context: Context) -> Translation | None:
    """Return the setting with a similar name, or the translation of a foreign name."""
    closest = ("." not in name and find_misspelled(name, SHORT_NAMES)) or find_misspelled(
        name, [key for key in get_setting_types() if _is_usable(key, context.chosen)]
    )
    has_leaf = "." in name and name.lower().rpartition(".")[2] in {
        key.rpartition(".")[2] for key in get_setting_types()
    }
    foreign = None if has_leaf and closest else translate(name, value, table=context.translations)
    if foreign and _has_meaning_in_other_section(name, foreign):
        return None
    if foreign is None and closest:
        is_method = closest.startswith("methods.") and find_dataclasses(get_setting_type(closest))
        return _translate_to(closest, value or "{}" if is_method else value)
    return foreign or translate(name, value, exactly=False, table=context.translations)


def _is_usable(key: str, chosen: Mapping[str, str]) -> bool:
    section = key.rpartition(".")[0]
    return section != "optimizer" or any(
        owner.name == chosen.get(section, owner.name) for owner in find_owners(key)
    )


def _has_meaning_in_other_section(name: str, translation: Translation) -> bool:
    """Return whether `model.lr` should not become `optimizer.lr`: the user chose the section.

    A name with a single meaning, such as `batch_size` or `mixup`, may change its section.
    """
    section, _, leaf = name.partition(".")
    key = translation.text.partition("=")[0]
    setting = expand(f"{key}=1")[0].key
    is_known = bool(leaf and find_dataclasses(get_setting_type(section)))
    is_general = "_" not in leaf and leaf not in (key, *setting.split("."))
    is_general = is_general and get_setting_type(setting) is not None
    is_general = is_general or translation.words[:1] == ("resnet-recipes",)
    return is_known and is_general and not f"{setting}.".startswith(f"{section}.")


def _check_setting(setting: str, chosen: Mapping[str, str] = {}) -> Problem | None:
    """Return the first problem of a setting, given the chosen sections; None if it is valid."""
    if setting.startswith("recipe="):
        return None
    changes, problems = parse([setting])
    for change in changes if not problems else ():
        if change.is_choice:
            try:
                Library().find_option(change.key, change.value or "")
            except RecipeError as error:
                problems += error.problems
        elif change.value is not None:
            section = change.key.rpartition(".")[0]
            tree = nest(change.key, change.read())
            owners = find_owners(change.key)
            # the default is the first optimizer with this setting
            first = owners[0].name if section in GROUPS and owners else ""
            if choice := chosen.get(root := section.partition(".")[0], first):
                tree[root] = {"name": choice, **tree[root]}
            problems += [problem for problem in build_recipe(tree)[1] if problem.key == change.key]
        if change.key == "model.name" and not problems:
            try:
                backbones.require_network(str(change.value))
            except RecipeError as error:
                problems += error.problems
    return next(iter(problems), None)


def _is_valid_sweep(argument: str, context: Context) -> bool:
    """Return whether a setting accepts each value of a sweep; one value is also a sweep."""
    try:
        points = list_points([argument])
        return not any(_check_setting(setting, context.chosen) for (setting,) in points)
    except RecipeError:
        return False


def _read_section_value(
    section: str, value: str, names: list[str], context: Context
) -> Translation | None:
    several = re.findall(r"\w+", value)
    if section == "methods":
        methods = [find_misspelled(name, names) for name in several]
        methods = ["mixup_or_cutmix"] if {*methods} == {"mixup", "cutmix"} else methods
        arguments = tuple(f"methods.{name}={{}}" for name in methods)
        return Translation(arguments) if all(methods) and methods else None
    if not value or value.lower() in OFF:
        return None  # a section cannot be switched off
    if section == "model" and value.endswith(_WEIGHTS_ENDINGS):
        ours = _translate_to("model.weights", value)
        return FOREIGN_VALUES["model.weights"].get(value.lower(), ours)
    if section in GROUPS:  # such as optimizer=torch.optim.SGD
        leaf = value.partition("(")[0].rpartition(".")[2].lower()
        return FOREIGN_VALUES[section].get(leaf, _translate_to(section, leaf))
    is_method = section.startswith("methods.")
    if not is_method and (translation := translate(section, value, table=context.translations)):
        return translation
    if is_method and names and value[:1] not in ("[", "{"):
        others = f"its other settings: {', '.join(names[1:])}" if names[1:] else ""
        return _translate_to(f"{section}.{names[0]}", value)._replace(note=others)
    return None


def _read_gpu_numbers(name: str, value: str) -> Translation | None:
    setting = get_full_name(name)
    text = value.strip("'\" ").lower()
    ids = _GPU_IDS.fullmatch(text) if setting in ("launch.device", "launch.gpus") else None
    if not ids or (setting == "launch.gpus" and "," not in text):  # a number that is too large
        return None
    count = ids[1].count(",") + 1
    words = f"CUDA_VISIBLE_DEVICES={ids[1]}", "resnet-train", "...", f"gpus={count}"
    return Translation(words, "an environment variable selects the GPUs; gpus= is their number")


def _read_several_values(name: str, value: str, context: Context) -> Translation | None:
    if not re.fullmatch(r"\[[^\[\]]+\]", value):
        return None
    sweep = f"{name}={','.join(re.split('[, ]+', value.strip('[] ')))}"
    words = ("-m", sweep)["," not in sweep :]
    return Translation(words) if _is_valid_sweep(sweep, context) else None
