"""`resnet-recipes predict RUN|FILE IMAGE...|FOLDER`: classify images with a trained network."""

import json
import os
import sys
from collections.abc import Iterable, Iterator

from resnet_recipes.base.errors import ExitCode, Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.base.text import csv_line, printable
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.trained import is_setting, named
from resnet_recipes.commands.written import opened_file
from resnet_recipes.data.inference import image_paths
from resnet_recipes.report.waiting import Waiting
from resnet_recipes.training.predict import BEST, Prediction, predictions

#: How many images that cannot be read are named.
_NAMED = 10


def run(arguments: Arguments) -> int:
    """Print one row per image, in the order of the words and, within a folder, of the names."""
    place, words = arguments.words[:1], arguments.words[1:]
    settings = [word for word in words if is_setting(word) and not os.path.exists(word)]
    images = [typed_path("IMAGE", word) for word in words if word not in settings]
    top = arguments.flags.get("--top", str(BEST))
    problems = []
    if not images:
        rule = "is missing: images, or folders with images"
        problems.append(Problem("IMAGE", None, rule, PAGES["predict"].example))
    if not (top.isdecimal() and int(top[:9])):
        problems.append(Problem("--top", top, "must be a whole number from 1", f"--top {BEST}"))
    if {"--csv", "--json"} <= arguments.flags.keys():
        problems.append(Problem("--json", None, "--csv has all predictions", "leave one out"))
    if problems:
        raise RecipeError(problems)
    paths = list(image_paths(images))
    network = named([*place, *settings], PAGES["predict"].example).on_device()
    bad: list[Prediction] = []
    found = _counting(predictions(network, paths, int(top[:9])), bad, len(paths))
    if "--csv" in arguments:
        count = min(int(top[:9]), network.network.about.num_classes)
        _write_csv(arguments.flags["--csv"], found, count)
    elif "--json" in arguments:
        print(json.dumps(list(map(_as_dict, found)), indent=1))
    else:
        for one in found:
            _print(one)
    if bad:
        say("\n".join(_unread(bad, len(paths))))
    failed = len(bad) == len(paths) or (bad and "--strict" in arguments)
    return ExitCode.NOT_READY if failed else ExitCode.DONE


def _counting(
    found: Iterable[Prediction], bad: list[Prediction], total: int
) -> Iterator[Prediction]:
    """Yield all predictions, show their number, and add those without classes to `bad`."""
    with Waiting("classifying") as waiting:
        for done, one in enumerate(found, start=1):
            if one.error:
                bad.append(one)
            yield one
            if not sys.stdout.isatty():  # there, the predictions are the progress
                waiting(done, total)


def _as_dict(one: Prediction) -> dict[str, object]:
    if one.error:
        return {"file": one.file, "error": one.error}
    classes = [{"class": name, "probability": share} for name, share in one.classes]
    return {"file": one.file, "classes": classes}


def _write_csv(file_name: str, found: Iterable[Prediction], count: int) -> None:
    """Write a row for each image as it comes: its classes, or why it cannot be read."""
    heads = [
        head for place in range(1, count + 1) for head in (f"class_{place}", f"probability_{place}")
    ]
    with opened_file("--csv", file_name) as file:
        file.write(csv_line(["file", *heads, "error"]).encode())
        for one in found:
            values = [value for name, share in one.classes for value in (name, f"{share:.6f}")]
            values += [""] * (2 * count - len(values))
            file.write(csv_line([one.file, *values, one.error]).encode())


def _print(one: Prediction) -> None:
    if not one.error:
        print(printable(one.file))
    for name, share in one.classes:
        print(f"  {100 * share:6.2f} %  {printable(name)}")


def _unread(bad: list[Prediction], count: int) -> Iterator[str]:
    """Yield how many images cannot be read, and which."""
    yield f"{len(bad):,} of {count:,} images cannot be read:"
    for one in bad[:_NAMED]:
        yield f"  {one.file} {one.error}"
    if len(bad) > _NAMED:
        yield f"  and {len(bad) - _NAMED:,} more; --csv FILE lists them all"
