"""`resnet-recipes convert SRC DST`: class folders to .beton files for FFCV."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Command, Hint, Kind, Problem, RecipeError, Value, to_text
from resnet_recipes.base.paths import parse_path
from resnet_recipes.base.suggestions import find_closest, find_misspelled, make_unknown_problem
from resnet_recipes.base.text import escape_controls, format_bytes, format_clock
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.printing import say
from resnet_recipes.command_line.run_arguments import is_image
from resnet_recipes.command_line.usage import Scope, Usage
from resnet_recipes.recipe.strict_yaml import parse_scalar
from resnet_recipes.report.progress import ProgressLine

if TYPE_CHECKING:
    from resnet_recipes.data.convert import Forecast
    from resnet_recipes.data.convert.encode import ConvertOptions

USAGE = Usage(
    "resnet-recipes convert SRC DST [option=value ...]",
    "convert images to FFCV files (.beton), one per split",
    "resnet-recipes convert /data/imagenet /data/imagenet-ffcv max_resolution=500",
    {"--dry-run": "predict size and time; write nothing"},
    """\
SRC is a folder with train/ and val/, or a folder of class folders. It may also contain WebDataset
tar files or Hugging Face parquet files. DST is a new folder, or a .beton file for class folders
without val_share. To resume a conversion, run the same command again.

Options, with their defaults:
  max_resolution=500         pixels; larger images are shrunk; null: never
  write_mode=proportion      raw (pixels), jpg, or proportion (some of each)
  compress_probability=0.5   fraction of JPEGs with write_mode=proportion
  jpeg_quality=90            from 1 to 100
  levels=1                   2: also store images at half size, for small crops
  shuffle=true  seed=0       store in random order
  on_bad_image=error         error or skip
  val_share=0  val_seed=0    like data.val_share: the fraction for val.beton
  nested_classes=null        like data.nested_classes
  workers=0                  processes; 0: one per core""",
    settings=Scope.OPTIONS,
)


def check(arguments: Arguments) -> "tuple[Path, Path, ConvertOptions]":
    """Return SRC, DST and the options. Raises RecipeError if one of them is wrong."""
    from resnet_recipes.data.convert.encode import ConvertOptions
    from resnet_recipes.data.convert.splits import plan_files

    source, target, changes = _split_paths_and_options(arguments)
    options = ConvertOptions()
    errors = ErrorCollector()
    with errors:
        options = _parse_options(changes)
    with errors:
        try:
            plan_files(source, target, options)
        except RecipeError as error:
            paths = [path for path in arguments.positional if path not in changes]
            others = [] if errors.problems else [*changes, *arguments.flags]
            raise type(error)(
                _complete_command(problem, paths, others) for problem in error.problems
            ) from None
    errors.raise_if_any()
    return source, target, options


def _complete_command(problem: Problem, paths: Sequence[str], others: Sequence[str]) -> Problem:
    """Return a problem whose fix is a complete command: with another DST, or with SRC and DST."""
    source, target = map(shlex.quote, paths)
    rest = shlex.join(others)
    if problem.key == "DST" and problem.corrections:
        words = [source, *problem.corrections]
    elif problem.key == "SRC" and problem.kind is Kind.ABSENT and is_image(paths[1]):
        words = [target, source]
    else:
        return problem
    command = " ".join(filter(None, ["resnet-recipes convert", *words, rest]))
    return problem._replace(fix=Command(command))


def run(arguments: Arguments, source: Path, target: Path, options: "ConvertOptions") -> int:
    """Print a forecast, convert unless --dry-run is set, and print the written files."""
    from resnet_recipes.data.convert import convert, forecast
    from resnet_recipes.data.convert.splits import count_finished, plan_files

    files = plan_files(source, target, options)
    if count_finished(files) == len(files):
        say(f"already converted: {target}")
    else:
        expected = forecast(source, target, options)
        say(*_describe_dataset(expected, target))
        if expected.unreadable and (options.on_bad_image == "skip" or "--dry-run" in arguments):
            say(f"{source} {expected.describe_unreadable()}")
        if "--dry-run" in arguments:
            return 0
        with ProgressLine("converting") as show:
            convert(source, target, options, show, expected)
    print("\n".join(escape_controls(split.target) for split in chain(*files)))
    return 0


def _split_paths_and_options(arguments: Arguments) -> tuple[Path, Path, list[str]]:
    """Return SRC, DST and the options. Raises RecipeError unless there are two paths."""
    from resnet_recipes.base.field_types import get_field_types
    from resnet_recipes.data.convert.encode import ConvertOptions

    names = get_field_types(ConvertOptions)
    typed_paths = [argument for argument in arguments.positional if _is_path(argument, names)]
    if len(typed_paths) < 2:
        typed_paths = [
            argument
            for argument in arguments.positional
            if argument in typed_paths or not find_closest(argument.partition("=")[0], names)
        ]
    if len(typed_paths) != 2:
        targets = (f"{path}-ffcv" for path in typed_paths)
        command = Command.of("resnet-recipes", "convert", *typed_paths, *targets)
        fix = command if len(typed_paths) == 1 else Hint(USAGE.line)
        raise RecipeError.of("COMMAND", "convert", "needs SRC and DST", fix)
    changes = [argument for argument in arguments.positional if argument not in typed_paths]
    source, target = map(parse_path, ("SRC", "DST"), typed_paths)
    return source, target, changes


def _is_path(argument: str, options: Collection[str]) -> bool:
    """Return whether an argument is SRC or DST, which may contain "=", and not an option."""
    key, equals, value = argument.partition("=")
    return not equals or "/" in key or (key not in options and "/" in value)


def _parse_options(arguments: Sequence[str]) -> "ConvertOptions":
    """Parse key=value arguments as conversion options. Raises RecipeError with every problem."""
    from resnet_recipes.base.field_types import get_field_types
    from resnet_recipes.data.convert.encode import ConvertOptions
    from resnet_recipes.recipe.build import build

    names = get_field_types(ConvertOptions)
    texts = dict(argument.split("=", 1) for argument in arguments)

    def read(texts: Mapping[str, str]) -> tuple[ConvertOptions, list[Problem]]:
        problems: list[Problem] = []
        values = {key: parse_scalar(value) for key, value in texts.items()}
        options = build(ConvertOptions, values, "", problems)
        return options, [*map(_suggest_value, (*problems, *options.problems()))]

    def explain_unknown(key: str, value: str) -> Problem:
        unknown = make_unknown_problem("option", key, names)._replace(typed=f"{key}={value}")
        parts = {part: name for name in names for part in name.split("_")}
        meant = "".join(unknown.corrections) or parts.get(find_misspelled(key, parts))
        if not meant:
            return unknown
        wrong = next(iter(read({meant: value})[1]), None)
        if not wrong:
            return unknown._replace(fix=f"{meant}={value}", valid=())
        clause = () if wrong.valid else (Hint(wrong.about(meant)),)
        return unknown._replace(
            fix=(*map(wrong.format_fix, wrong.corrections), *clause), valid=wrong.valid
        )

    options, problems = read({key: value for key, value in texts.items() if key in names})
    unknown = [explain_unknown(key, value) for key, value in texts.items() if key not in names]
    RecipeError.raise_if_any([*unknown, *problems])
    return options


def _suggest_value(problem: Problem) -> Problem:
    from resnet_recipes.data.convert.encode import ConvertOptions

    if problem.fix or problem.kind is Kind.UNKNOWN:
        return problem
    meant = find_closest(str(problem.value), problem.valid)
    default = getattr(ConvertOptions(), problem.key)
    usual = "null" if default is None else to_text(default)
    return problem._replace(fix=Value(meant or usual))


def _describe_dataset(expected: "Forecast", target: Path) -> list[str]:
    seconds = 60 * expected.minutes
    time = f"about {format_clock(seconds)}" if seconds >= 1 else "under a second"
    lines = [
        f"{expected.images:,} images to {target}: about {format_bytes(expected.bytes)} of "
        f"{format_bytes(expected.free_bytes)} free, {time} (measured on {expected.sampled_images})"
    ]
    if names := expected.ignored_files:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines.append(f"skipped, because train and val come from other files: {names[0]}{more}")
    if expected.resumed_images:
        lines.append(f"{expected.resumed_images:,} images are already there; resuming")
    return lines
