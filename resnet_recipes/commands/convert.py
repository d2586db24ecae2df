"""`resnet-recipes convert SRC DST`: class folders to .beton files for FFCV."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments, Usage
from resnet_recipes.commands.progress import progress_printer, say
from resnet_recipes.report.text import clock_time, printable

if TYPE_CHECKING:
    from resnet_recipes.data.convert.encode import ConvertOptions
    from resnet_recipes.data.convert.run import Forecast, Progress

USAGE = Usage(
    "resnet-recipes convert SRC DST [option=value ...]",
    "convert class folders to .beton files for FFCV",
    "resnet-recipes convert /data/imagenet /data/imagenet-ffcv max_resolution=500",
    {"--dry-run": "only predict size and time"},
    """\
SRC is a folder with train/ and val/, or one folder of classes; then DST is a
.beton file, unless val_share splits it into two. To resume a conversion, run the same command again.

Options, with their defaults:
  max_resolution=500         pixels; larger images are shrunk; null: none are
  write_mode=proportion      raw: pixels; jpg: JPEG; proportion: some of each
  compress_probability=0.5   share of JPEG, for write_mode=proportion
  jpeg_quality=90            from 1 to 100
  levels=1                   2: also store half size, for small crops
  shuffle=true  seed=0       store in random order
  on_bad_image=error         error or skip
  val_share=0  val_seed=0    as data.val_share: some images become val.beton
  nested_classes=false       as data.nested_classes
  workers=0                  processes; 0: one per core""",
)


def run(arguments: Arguments) -> int:
    """Print the forecast of a conversion, run it unless --dry-run, and print the files that it wrote."""
    places = [word for word in arguments.words if "=" not in word]
    if len(places) != 2:
        raise RecipeError([Problem("convert", None, "needs a source and a target", USAGE.example)])
    options = _options([word for word in arguments.words if "=" in word])

    from resnet_recipes.data.convert.run import convert, forecast

    source, target = (Path(os.path.expanduser(place)) for place in places)
    expected = forecast(source, target, options)
    say("\n".join(_forecast(expected, target)))
    if "--dry-run" not in arguments:
        tell = progress_printer()
        for path in convert(
            source, target, options, lambda progress: tell(_progress(progress)), expected
        ):
            print(printable(path))
    return 0


def _options(words: Sequence[str]) -> "ConvertOptions":
    """Read key=value words as conversion options. Raises RecipeError with every problem."""
    from resnet_recipes.data.convert.encode import ConvertOptions
    from resnet_recipes.recipe.scalars import plain
    from resnet_recipes.recipe.suggestions import did_you_mean
    from resnet_recipes.recipe.typed import build, kinds_of

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


def _forecast(expected: "Forecast", target: Path) -> list[str]:
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
    if expected.resumed_images:
        lines.append(f"{expected.resumed_images:,} images are already there; resuming")
    return lines + [f"unreadable: {printable(name)}" for name in expected.unreadable[:10]]


def _progress(progress: "Progress") -> str:
    return (
        f"{progress.split}: {progress.done:,} of {progress.total:,} images, "
        f"{progress.bytes / 1e9:.2f} GB, "
        f"{clock_time(progress.seconds_left)} left"
    )
