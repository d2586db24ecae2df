"""`resnet-recipes convert SRC DST`: class folders to .beton files for FFCV."""

from collections.abc import Sequence
from pathlib import Path

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.base.kinds import kinds_of
from resnet_recipes.base.paths import typed_path
from resnet_recipes.base.text import clock_time, printable
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.commands.progress import say
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.convert.forecast import Forecast, forecast
from resnet_recipes.data.convert.run import convert
from resnet_recipes.recipe.scalars import plain
from resnet_recipes.recipe.suggestions import did_you_mean
from resnet_recipes.recipe.typed import build
from resnet_recipes.report.waiting import Waiting


def run(arguments: Arguments) -> int:
    """Print the forecast of a conversion, run it unless --dry-run, and print the files it wrote."""
    places = [word for word in arguments.words if _is_place(word)]
    if len(places) != 2:
        raise RecipeError.of(
            "convert", None, "needs a source and a target", PAGES["convert"].example
        )
    options = _options([word for word in arguments.words if not _is_place(word)])

    source, target = map(typed_path, ("SRC", "DST"), places)
    expected = forecast(source, target, options)
    say("\n".join(_forecast(expected, target)))
    if "--dry-run" not in arguments:
        with Waiting("converting") as waiting:
            paths = convert(source, target, options, waiting, expected)
        print("\n".join(map(printable, paths)))
    return 0


def _is_place(word: str) -> bool:
    """Return whether a word is SRC or DST, which may have an = in it, and not an option."""
    key, equals, value = word.partition("=")
    return not equals or "/" in key or (key not in kinds_of(ConvertOptions) and "/" in value)


def _options(words: Sequence[str]) -> ConvertOptions:
    """Read key=value words as conversion options. Raises RecipeError with every problem."""
    known = kinds_of(ConvertOptions)
    given = dict(word.split("=", 1) for word in words)
    listed = f"options: {', '.join(known)}"
    problems = [
        Problem(f"{key}={value}", None, "unknown option", did_you_mean(key, known) or listed)
        for key, value in given.items()
        if key not in known
    ]
    options = build(
        ConvertOptions, {key: plain(value) for key, value in given.items()}, "", problems
    )
    if problems:
        raise RecipeError(problems)
    return options


def _forecast(expected: Forecast, target: Path) -> list[str]:
    size, free = f"{expected.bytes / 1e9:.2f} GB", f"{expected.free_bytes / 1e9:.1f} GB"
    lines = [
        f"{expected.images:,} images to {target}: about {size} of {free} free, "
        f"about {clock_time(60 * expected.minutes)} (measured on {expected.sampled})"
    ]
    if expected.speeds:
        speeds = ", ".join(f"{speed:,.0f} at {side} px" for side, speed in expected.speeds.items())
        lines.append(
            "random crops by the native decoder, images per second and core on this "
            f"machine: {speeds}"
        )
    if names := expected.left_out:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines.append(f"left out, because train and val are read from other files: {names[0]}{more}")
    if expected.resumed_images:
        lines.append(f"{expected.resumed_images:,} images are already there; resuming")
    return lines + [f"unreadable: {name}" for name in expected.unreadable[:10]]
