"""`resnet-recipes export RUN`: write a trained network for another program and check it."""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Command, Kind, NotReadyError, Problem, RecipeError
from resnet_recipes.base.extras import find_extra_problems
from resnet_recipes.base.paths import find_free_path, parse_new_path, parse_path
from resnet_recipes.base.suggestions import (
    FOREIGN_VALUES,
    OFF,
    Translation,
    find_misspelled,
    guess_flag_value,
)
from resnet_recipes.base.text import format_bytes, format_facts
from resnet_recipes.command_line.arguments import Arguments, drop_arguments, get_value
from resnet_recipes.command_line.printing import get_line_width, say
from resnet_recipes.command_line.run_arguments import (
    check_network,
    find_network_setting_problems,
    open_trained_network,
)
from resnet_recipes.command_line.usage import RUN_HELP, Scope, Usage
from resnet_recipes.jobs.lookup import find_network
from resnet_recipes.network import hub
from resnet_recipes.report.progress import ProgressLine

USAGE = Usage(
    "resnet-recipes export RUN|FILE --to FORMAT --out FOLDER [data=PATH]",
    "export a network and check that its outputs match the run",
    "resnet-recipes export last --to onnx --out exported",
    {
        "--to FORMAT": "torchvision, timm, safetensors, onnx or exported_program",
        "--out FOLDER": "new folder for the network and its model card, README.md",
        "--push hf:USER/NAME": "upload the folder to the Hugging Face Hub (hf auth login)",
        "--dtype TYPE": "float32 (default), float16 (half the size) or int8 (a quarter; onnx)",
        "--lose POINTS": "reject a file whose top-1 on all validation images is more than "
        "POINTS below that of the network (default 0.5 with float16 and int8, else not measured)",
        "--with-preprocessing": "accept uint8 images of any size and return probabilities (onnx, "
        "exported_program)",
    },
    f"""\
{RUN_HELP} FILE is a
checkpoint or a weights file, as for `eval`. The target program loads the export, and its
outputs are compared on up to 64 validation images of PATH or of the run, or on random images
if the run has none. BlurPool stays in the network; the factors of StochasticDepth become
part of the weights.""",
    settings=Scope.NETWORK,
)

_DTYPES = ("float32", "float16", "int8")

#: Settings of other programs that mean --to.
_FORMAT_KEYS = ("format", "to")


def check(arguments: Arguments) -> None:
    """Raise RecipeError if a flag is wrong, the network is missing or the folder is not new."""
    from resnet_recipes.inference.formats import FORMATS

    flags = arguments.flags
    errors = ErrorCollector()
    with errors:
        check_network(arguments.positional, USAGE)
    with errors:
        RecipeError.raise_if_any(_find_flag_problems(arguments, FORMATS, not errors.problems))
    with errors:
        if "--out" in flags:
            parse_new_path("--out", flags["--out"], is_folder=True)
    with errors:
        if "--push" in flags:
            hub.parse_repository("--push", flags["--push"])
            NotReadyError.raise_if_any(hub.find_package_problems())
    errors.raise_if_any()


def run(arguments: Arguments) -> int:
    """Export, compare, and print the largest difference."""
    from resnet_recipes.data import require_trusted_url
    from resnet_recipes.inference.export import (
        COMPARED_IMAGES,
        ExportOptions,
        export_and_check,
        find_problems,
    )
    from resnet_recipes.inference.formats import FORMATS

    flags = arguments.flags
    to = flags["--to"]
    folder = parse_path("--out", flags["--out"])
    push = flags.get("--push")
    dtype, lose = _read_precision(flags)
    network = open_trained_network(arguments.positional, USAGE)
    recipe = network.recipe
    recipe = replace(recipe, launch=replace(recipe.launch, device="cpu"))
    # the programs that read the file do not use autocast
    recipe = replace(recipe, precision=replace(recipe.precision, dtype="fp32"))
    network = replace(network, recipe=recipe)
    if lose:  # fetches the images
        require_trusted_url(recipe.data, arguments.positional[1:])
    preprocesses = "--with-preprocessing" in arguments
    is_typed = bool(get_value(arguments.positional, "data", "data.root"))
    options = ExportOptions(preprocesses, dtype, float(lose) if lose else None, is_typed)
    RecipeError.raise_if_any(find_problems(network.network, to, options))
    NotReadyError.raise_if_any(find_extra_problems("--to", to, *FORMATS[to].needs))
    say(f"writing {FORMATS[to].file}, then comparing its outputs on {COMPARED_IMAGES} images ...")
    with ProgressLine("comparing") as show:
        exported = export_and_check(network.to_device(), to, folder, options, show)
    count = sum(weight.numel() for weight in network.network.parameters())
    size = f"{count:,} parameters, {len(network.network.classes):,} classes"
    if not exported.any_size:
        image_size = recipe.data.eval_size
        size += f", only for images of {image_size} x {image_size} px"
        if FORMATS[to].use_preprocessed:
            size += " (any size: --with-preprocessing)"
    facts = {
        "network": f"{FORMATS[to].file}, {to} format, {format_bytes(exported.bytes)}, {size}",
        "compared": exported.comparison,
        "saved": folder,
    }
    print("\n".join(format_facts(facts.items(), get_line_width(), 10)))
    if push:
        say(f"uploading to {push} ...")
        print(f"pushed    {hub.push(folder, push)}")
    return 0


def _find_possible_formats(positional: Sequence[str], to: str) -> tuple[str, ...]:
    """Return the flag of a format, or of other formats if the network does not fit it."""
    from resnet_recipes.inference.export import ExportOptions, find_problems
    from resnet_recipes.inference.open import SETTINGS, open_trained

    with suppress(RecipeError):  # another problem of the command
        path = find_network(positional[0], "RUN|FILE") if positional else Path()
        network = open_trained(path, positional[1:], SETTINGS["export"]).network
        for problem in find_problems(network, to, ExportOptions()):
            return problem.corrections
    return (f"--to {to}",)


def _read_precision(flags: Mapping[str, str]) -> tuple[str, str]:
    """Return the type of the weights and the accepted loss in points, or "" if not measured."""
    dtype = flags.get("--dtype", "float32")
    return dtype, flags.get("--lose", "" if dtype == "float32" else "0.5")


def _find_flag_problems(
    arguments: Arguments, formats: Collection[str], has_network: bool
) -> Iterator[Problem]:
    """Yield problems of flags and settings that are known before the network is opened."""
    flags = arguments.flags
    dtype, lose = _read_precision(flags)
    settings = drop_arguments(arguments.positional, *_FORMAT_KEYS)
    yield from map(_suggest_dtype, find_network_setting_problems("export", settings))
    yield from _find_missing_flag_problems(arguments, formats, has_network)
    if "--to" in flags and flags["--to"] not in formats:
        yield _explain_format(arguments, formats)
    if dtype not in _DTYPES:
        yield Problem("--dtype", dtype, "", guess_flag_value("--dtype", dtype, _DTYPES), _DTYPES)
    if lose and not re.fullmatch(r"\d{1,3}(\.\d+)?", lose):
        yield Problem("--lose", lose, "must be a number of points", "--lose 0.5")


def _suggest_dtype(problem: Problem) -> Problem:
    """Return the problem of a setting, with --dtype if the setting means it, as in half=True."""
    meant = str(problem.value) if problem.key.endswith("dtype") else problem.key
    is_on = str(problem.value).lower() not in OFF
    dtype = is_on and guess_flag_value("--dtype", meant, _DTYPES)
    return problem._replace(fix=f"--dtype {dtype}", valid=()) if dtype else problem


def _find_missing_flag_problems(
    arguments: Arguments, formats: Collection[str], has_network: bool
) -> Iterator[Problem]:
    """Yield the problems that --to or --out is missing, with the complete command."""
    flags = arguments.flags
    format_names = [word for word in arguments.positional[1:] if word in formats]
    rest = drop_arguments(arguments.positional, *_FORMAT_KEYS)
    rest = [word for word in rest if word not in format_names]
    if find_network_setting_problems("export", rest):
        rest = [word for word in rest if not find_network_setting_problems("export", [word])]
    to = flags.get("--to") or get_value(arguments.positional, *_FORMAT_KEYS)
    to = to or next(iter(format_names), "onnx")
    folders = [word for word in rest[1:] if "=" not in word]  # typed after RUN
    folder = find_free_path(Path((folders or ["exported"])[0]))
    path = shlex.quote(flags.get("--out") or str(folder))
    words = shlex.join([word for word in rest if word not in folders])
    command = Command(f"resnet-recipes export {words} --to {to} --out {path}")
    fix = command if has_network and to in formats else ""
    if "--to" not in flags:
        near = f"--to {to}" if rest != arguments.positional and to in formats else ""
        yield Problem("--to", None, "", near, tuple(formats), Kind.MISSING)
    if "--out" not in flags:
        yield Problem("--out", None, "", fix or f"--out {path}", kind=Kind.MISSING)


def _explain_format(arguments: Arguments, formats: Collection[str]) -> Problem:
    """Return the problem of an unknown format, with the formats that it may mean."""
    to = arguments.flags["--to"]
    translation = FOREIGN_VALUES["--to"].get(to.lower(), Translation((to.lower(),)))
    meant = translation.text
    meant = meant if meant in formats else find_misspelled(meant, formats)
    fixes = _find_possible_formats(arguments.positional, meant) if meant else ()
    if "--dtype" not in arguments and (dtype := guess_flag_value("--dtype", to, _DTYPES)):
        fixes = (f"--to onnx --dtype {dtype}",)
    return Problem("--to", to, translation.note, fixes, tuple(formats))
