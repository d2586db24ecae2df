"""`resnet-recipes predict RUN|FILE IMAGE...|FOLDER`: classify images with a trained network."""

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import (
    Command,
    ExitCode,
    Hint,
    Kind,
    Problem,
    RecipeError,
    Statement,
)
from resnet_recipes.base.limits import find_number_problem
from resnet_recipes.base.paths import parse_path
from resnet_recipes.base.suggestions import IMAGE_FLAGS
from resnet_recipes.base.text import escape_controls, format_csv_line
from resnet_recipes.command_line.arguments import Arguments, get_value
from resnet_recipes.command_line.printing import open_output, say
from resnet_recipes.command_line.run_arguments import (
    check_network,
    find_missing_network_problem,
    is_image,
    is_run,
    is_setting,
    open_trained_network,
)
from resnet_recipes.command_line.usage import RUN_HELP, Scope, Usage
from resnet_recipes.jobs.lookup import LAST
from resnet_recipes.report.progress import ProgressLine

if TYPE_CHECKING:
    from resnet_recipes.data.images.decode import Pixels
    from resnet_recipes.inference.trained_network import Prediction, TrainedNetwork

USAGE = Usage(
    "resnet-recipes predict RUN|FILE IMAGE ... | FOLDER ... [key=value ...]",
    "print the most likely classes of each image",
    "resnet-recipes predict last ~/photos --csv photos.csv",
    {
        "--top N": "number of classes to print (default 5)",
        "--csv FILE.csv": "write the classes to FILE.csv instead of printing them",
        "--json": "print JSON",
        "--gallery FILE.html": "write an HTML page of the images, with the regions that support "
        "the class",
        "--strict": "exit with code 3 if any image is unreadable (default: only if all are)",
    },
    f"""\
{RUN_HELP} FILE is a
checkpoint or a weights file, as for `eval`. Subfolders are included. Unreadable images are
reported on stderr, and the others are classified. If a path does not exist, nothing is
classified. Settings: data.eval_size, data.eval_resize, evaluation.flip, batch.eval_size,
precision.dtype, launch.device, workers. EXIF orientation is ignored, as in training: first
rotate photographs that are stored sideways.""",
    settings=Scope.NETWORK,
    takes_images=True,
)

_MAX_NAMED = 10  # unreadable images to name
_IN_GALLERY = 1000  # images in the gallery


def check(arguments: Arguments) -> tuple[list[str], "list[str | Pixels]", int]:
    """Return the network with its settings, the images, and the number of classes to print.

    Raises RecipeError if an argument is wrong.
    """
    from resnet_recipes.inference.images import find_images

    first = arguments.positional[:1]
    others = arguments.positional[1:]
    settings = [argument for argument in others if is_setting(argument)]
    network = [*first, *settings]
    images = [parse_path("IMAGE", argument) for argument in others if argument not in settings]
    top = arguments.flags.get("--top", "5")
    errors = ErrorCollector()
    with errors:
        RecipeError.raise_if_any([find_number_problem("--top", top, 1, fix="--top 5")])
    with errors:
        RecipeError.raise_if_any(_find_argument_problems(arguments, bool(images)))
        with errors:
            check_network(network, USAGE)
        paths = find_images(images)
    errors.raise_if_any()
    return network, paths, int(top)


def run(arguments: Arguments, opened: list[str], paths: "list[str | Pixels]", top: int) -> int:
    """Print one row per image, in the order of the arguments and, within a folder, by name."""
    from resnet_recipes.data.imagenet import find_english_name
    from resnet_recipes.inference.trained_network import predict_images

    network = open_trained_network(opened, USAGE).to_device()
    class_count = min(top, network.network.about.num_classes)
    bad: list[Prediction] = []
    counted: Iterable[Prediction] = _count(
        predict_images(network, paths, class_count), bad, len(paths)
    )
    if gallery := arguments.flags.get("--gallery"):
        counted = predictions = list(counted)
    if "--csv" in arguments:
        _write_csv(arguments.flags["--csv"], counted, class_count)
    elif "--json" in arguments:
        print(json.dumps(list(map(_make_prediction_row, counted)), indent=1))
    else:
        for prediction in counted:
            if not prediction.error:
                print(escape_controls(prediction.file))
            for name, probability in prediction.classes:
                title = f"{name} {find_english_name(name)}".rstrip()
                print(f"  {100 * probability:6.2f}%  {escape_controls(title)}")
    if gallery:
        _write_gallery(gallery, network, paths, predictions)
    failed = len(bad) == len(paths) or (bad and "--strict" in arguments)
    if bad:
        text = "\n".join(_describe_unread(bad, len(paths)))
        say(f"error: {text}\n\n[exit {ExitCode.NOT_READY}]" if failed else text)
    return ExitCode.NOT_READY if failed else ExitCode.DONE


def _find_argument_problems(arguments: Arguments, has_images: bool) -> Iterator[Problem]:
    first = arguments.positional[:1]
    others = arguments.positional[1:]
    lacks_run = not has_images and any(map(is_image, first))  # the run is missing
    command = Command.of("resnet-recipes", "predict", *([LAST] if lacks_run else []), *first)
    problem = find_missing_network_problem(
        [] if lacks_run else first, command if lacks_run else USAGE.example
    )
    if problem:
        yield problem
    if not (has_images or lacks_run):
        typed = get_value(others, *IMAGE_FLAGS)  # source=photos
        fix: str = Hint(f"{command} IMAGE ...")
        if typed:
            fix = Command(f"{command} {shlex.quote(typed)}")
        fix = "" if problem else fix  # it has this advice already
        yield Problem("IMAGE", None, "pass files or folders", fix, kind=Kind.MISSING)
    if swapped := list(filter(is_run, others)):
        runs = [*filter(is_run, first), *swapped]
        rest = [argument for argument in arguments.positional if argument not in runs]
        fix = Command.of("resnet-recipes", "predict", runs[0], *rest)
        clause = "is a run, and the run comes first"
        if len(runs) > 1:
            clause = "is a second run; pass one run, then images"
        fix = fix if rest else Hint(f"{fix} IMAGE ...")
        yield Problem("IMAGE", runs[-1], clause, fix)
    if {"--csv", "--json"} <= arguments.flags.keys():
        yield Problem(
            "--json", None, Statement("--csv has all predictions"), Hint("remove one of them")
        )


def _write_gallery(
    file_name: str,
    network: "TrainedNetwork",
    paths: "Sequence[str | Pixels]",
    predictions: "Sequence[Prediction]",
) -> None:
    """Write a page of the first images, without unreadable ones, each with a heat map."""
    from resnet_recipes.inference.images import UnlabeledImages
    from resnet_recipes.inference.network_pool import PooledImage
    from resnet_recipes.report.page.html import Tile, build_gallery

    names, tiles = network.network.classes, []
    with closing(UnlabeledImages(paths, network.recipe.data, 1)) as loader:
        for index, (file, classes, _) in enumerate(predictions[:_IN_GALLERY]):
            for best, probability in classes[:1]:
                pixels = PooledImage(network, loader, index).make_picture(names.index(best))
                tiles.append(Tile(pixels, file, "", best, probability))
    text = f"{len(tiles):,} of {len(paths):,} images"
    with open_output("--gallery", file_name) as page:
        page.write(build_gallery("Predictions", text, tiles).encode())


def _count(
    predictions: "Iterable[Prediction]", bad: "list[Prediction]", total: int
) -> "Iterator[Prediction]":
    """Yield all predictions, show their number, and add unreadable images to `bad`."""
    with ProgressLine("classifying") as show:
        for count, prediction in enumerate(predictions, start=1):
            if prediction.error:
                bad.append(prediction)
            yield prediction
            if not sys.stdout.isatty():  # on a terminal the predictions themselves show progress
                show(count, total)


def _make_prediction_row(prediction: "Prediction") -> dict[str, object]:
    if prediction.error:
        return {"file": prediction.file, "error": prediction.error}
    classes = [{"class": name, "probability": value} for name, value in prediction.classes]
    return {"file": prediction.file, "classes": classes}


def _write_csv(file_name: str, predictions: "Iterable[Prediction]", class_count: int) -> None:
    """Write a row for each image when it is ready: its classes, or why it is unreadable."""
    heads = [
        f"{head}_{rank}" for rank in range(1, class_count + 1) for head in ("class", "probability")
    ]
    with open_output("--csv", file_name) as file:
        file.write(format_csv_line(["file", *heads, "error"]).encode())
        for prediction in predictions:
            values = [text for name, value in prediction.classes for text in (name, f"{value:.6f}")]
            values += [""] * (len(heads) - len(values))
            file.write(format_csv_line([prediction.file, *values, prediction.error]).encode())


def _describe_unread(bad: "list[Prediction]", count: int) -> Iterator[str]:
    if count == 1:
        yield f"{bad[0].file} {bad[0].error}"
        return
    yield f"{len(bad):,} of {count:,} images cannot be read:"
    yield from (f"  {prediction.file} {prediction.error}" for prediction in bad[:_MAX_NAMED])
    if len(bad) > _MAX_NAMED:
        yield f"  and {len(bad) - _MAX_NAMED:,} more; --csv FILE lists them all"
