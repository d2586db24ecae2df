"""`resnet-recipes predict RUN|FILE IMAGE...|FOLDER`: classify images with a trained network."""

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resnet_recipes.base.errors import ExitCode, NotReadyError, Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.commands.arguments import Arguments, Usage
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.trained import is_setting, trained
from resnet_recipes.report.text import printable

if TYPE_CHECKING:
    from resnet_recipes.training.trained import Trained

USAGE = Usage(
    "resnet-recipes predict RUN|FILE IMAGE ... | FOLDER ... [key=value ...]",
    "print the five most likely classes of each image, with their probabilities",
    "resnet-recipes predict runs/NAME ~/photos --csv > photos.csv",
    {"--json": "print JSON", "--csv": "print CSV"},
    """\
Folders are searched for images, with all their subfolders. Images that cannot
be read are reported on stderr, and the others are still classified. Settings
are those of resnet-recipes eval.""",
)


def run(arguments: Arguments) -> int:
    """Print one row per image, in the order of the words and, within a folder, of the names."""
    place, words = arguments.words[:1], arguments.words[1:]
    settings = [word for word in words if is_setting(word) and not os.path.exists(word)]
    paths = list(_images([word for word in words if word not in settings]))
    network = trained([*place, *settings], USAGE.example)
    rows = _predicted(network, paths)
    bad = (
        _print_json(rows)
        if "--json" in arguments
        else _print_rows(rows, as_csv="--csv" in arguments)
    )
    if bad:
        say(f"{bad:,} of {len(paths):,} images cannot be read")
    return ExitCode.NOT_READY if bad == len(paths) else ExitCode.DONE


def _images(words: Sequence[str]) -> Iterator[str]:
    """Yield the absolute paths of all images. Raises RecipeError if there are none, NotReadyError for missing ones."""
    from resnet_recipes.data.files.folder import image_names

    if not words:
        raise RecipeError(
            [Problem("IMAGE", None, "is missing: images, or folders with images", USAGE.example)]
        )
    paths = [typed_path("IMAGE", word).absolute() for word in words]
    if missing := [
        Problem(str(path), None, "no such file or folder") for path in paths if not path.exists()
    ]:
        raise NotReadyError(missing)
    for path in paths:
        if not path.is_dir():
            yield str(path)
            continue
        try:
            found = sorted(image_names(path))
        except OSError as error:
            raise NotReadyError(
                [Problem(str(path), None, f"cannot be read: {error.strerror}")]
            ) from None
        if not found:
            raise NotReadyError([Problem(str(path), None, "has no images")])
        yield from (str(path / name) for name in found)


def _predicted(network: "Trained", paths: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the result for each image: a file with its classes, the best first, or with an error."""
    from resnet_recipes.data.stream import Stream
    from resnet_recipes.data.unseen import Unlabelled
    from resnet_recipes.training.evaluate import logits_of

    recipe, name = network.recipe, network.network.about.class_name
    images = Unlabelled(paths, recipe.data, recipe.batch.eval_size)
    try:
        for raw in Stream(images.batches(), network.device):
            logits = logits_of(network.model, raw.pixels, network.precision, recipe.evaluation.flip)
            shares, best = logits.softmax(1).topk(min(5, logits.shape[1]))
            black = raw.pixels.flatten(1).amax(1) == 0
            for index, *row in zip(
                *(part.tolist() for part in (raw.labels, black, best, shares)), strict=True
            ):
                is_black, labels, probabilities = row
                if is_black and (fault := images.fault(index)):
                    yield {"file": paths[index], "error": fault}
                    continue
                pairs = zip(labels, probabilities, strict=True)
                yield {
                    "file": paths[index],
                    "classes": [
                        {"class": name(label), "probability": share} for label, share in pairs
                    ],
                }
    finally:
        images.close()


def _print_json(rows: Iterator[dict[str, Any]]) -> int:
    """Print all rows as one JSON list; return how many have an error."""
    found = list(rows)
    print(json.dumps(found, indent=1))
    return sum("error" in row for row in found)


def _print_rows(rows: Iterator[dict[str, Any]], as_csv: bool) -> int:
    """Print rows as they come; errors go to stderr. Return how many there are."""
    table, bad = csv.writer(sys.stdout, lineterminator="\n"), 0
    for count, row in enumerate(rows):
        if count == 0 and as_csv:
            table.writerow(
                [
                    "file",
                    *(
                        f"{what}_{place}"
                        for place in range(1, 6)
                        for what in ("class", "probability")
                    ),
                ]
            )
        if "error" in row:
            bad += 1
            say(f"{printable(row['file'])} {printable(row['error'])}")
        elif as_csv:
            values = [
                value
                for item in row["classes"]
                for value in (item["class"], f"{item['probability']:.6f}")
            ]
            table.writerow([row["file"], *values])
        else:
            print(printable(row["file"]))
            for item in row["classes"]:
                print(f"  {100 * item['probability']:6.2f} %  {printable(item['class'])}")
    return bad
