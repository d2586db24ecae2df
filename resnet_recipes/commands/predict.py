"""`resnet-recipes predict RUN|FILE IMAGE...|FOLDER`: classify images with a trained network."""

import json
import os
from collections.abc import Iterator

from resnet_recipes.base.errors import ExitCode, Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.trained import is_setting, named
from resnet_recipes.data.inference import image_paths
from resnet_recipes.report.text import csv_line, printable
from resnet_recipes.training.predict import BEST, Prediction, predictions


def run(arguments: Arguments) -> int:
    """Print one row per image, in the order of the words and, within a folder, of the names."""
    place, words = arguments.words[:1], arguments.words[1:]
    settings = [word for word in words if is_setting(word) and not os.path.exists(word)]
    images = [typed_path("IMAGE", word) for word in words if word not in settings]
    if not images:
        rule = "is missing: images, or folders with images"
        raise RecipeError([Problem("IMAGE", None, rule, PAGES["predict"].example)])
    paths = list(image_paths(images))
    network = named([*place, *settings], PAGES["predict"].example).on_device()
    found = predictions(network, paths)
    bad = (
        _print_json(found)
        if "--json" in arguments
        else _print_rows(found, as_csv="--csv" in arguments)
    )
    if bad:
        say(f"{bad:,} of {len(paths):,} images cannot be read")
    return ExitCode.NOT_READY if bad == len(paths) else ExitCode.DONE


def _print_json(found: Iterator[Prediction]) -> int:
    """Print all predictions as one JSON list; return how many images cannot be read."""
    rows = list(map(_as_dict, found))
    print(json.dumps(rows, indent=1))
    return sum("error" in row for row in rows)


def _as_dict(one: Prediction) -> dict[str, object]:
    if one.error:
        return {"file": one.file, "error": one.error}
    classes = [{"class": name, "probability": share} for name, share in one.classes]
    return {"file": one.file, "classes": classes}


def _print_rows(found: Iterator[Prediction], as_csv: bool) -> int:
    """Print predictions as they come; errors go to stderr.

    Return how many images cannot be read.
    """
    bad = 0
    for count, one in enumerate(found):
        if count == 0 and as_csv:
            heads = [(f"class_{place}", f"probability_{place}") for place in range(1, BEST + 1)]
            print(csv_line(["file", *(head for pair in heads for head in pair)]), end="")
        if one.error:
            bad += 1
            say(f"{printable(one.file)} {printable(one.error)}")
        elif as_csv:
            values = [value for name, share in one.classes for value in (name, f"{share:.6f}")]
            print(csv_line([one.file, *values]), end="")
        else:
            print(printable(one.file))
            for name, share in one.classes:
                print(f"  {100 * share:6.2f} %  {printable(name)}")
    return bad
