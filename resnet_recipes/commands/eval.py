"""`resnet-recipes eval RUN|FILE`: the accuracy of a trained network, by class and by image size."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.base.text import csv_line, printable, rate, wrapped
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.table import line_width, table
from resnet_recipes.commands.trained import named
from resnet_recipes.commands.written import opened_file, write_csv
from resnet_recipes.data.loading.loader import EvalLoader
from resnet_recipes.jobs.evaluate import evaluate
from resnet_recipes.jobs.opened import Opened
from resnet_recipes.network.about import About
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.report.page.classes import by_class
from resnet_recipes.report.page.gallery import Tile, gallery
from resnet_recipes.report.page.pictures import plotting, png
from resnet_recipes.training.confusion import Cell, Confusion, Means
from resnet_recipes.training.outcomes import Outcomes
from resnet_recipes.training.trained import Evaluated

#: How many classes and confusions are printed, how many classes are in the picture, and how many
#: images in the gallery.
_SHOWN, _DRAWN, _IN_GALLERY = 10, 40, 100


def run(arguments: Arguments) -> int:
    """Evaluate, and print the result."""
    also = ("evaluation.sizes", "launch.gpus")
    opened = named(arguments.words, PAGES["eval"].example, also)
    place, _, recipe = opened
    sizes = recipe.evaluation.sizes
    for flag in ("--png", "--images", "--gallery") if sizes else ():
        if flag in arguments:
            rule = f"is for one test size, but evaluation.sizes is {sizes}"
            raise RecipeError.of(flag, arguments.flags[flag], rule, "'evaluation.sizes=[]'")
    if "--png" in arguments:
        plotting("--png")
    _keep_tables(arguments, recipe.data.root)
    tried = sizes or [recipe.data.eval_size]
    code, found = evaluate(opened, tried, say)
    if code:
        return code
    rows = [_row(place, recipe, size, one) for size, one in zip(tried, found, strict=True)]
    if sizes:
        print(json.dumps(rows, indent=2) if "--json" in arguments else "\n".join(_sizes(rows)))
        write_csv(arguments, rows)
    else:
        _one_size(arguments, opened, rows[0], found[0].outcomes)
    return 0


def _keep_tables(arguments: Arguments, root: str) -> None:
    """Raise RecipeError for a CSV file that is there already and may list the images."""
    for flag in ("--csv", "--images") if root else ():
        path = typed_path(flag, arguments.flags.get(flag, "")).resolve()
        images = Path(root).resolve()
        if flag in arguments and path.is_file() and images in (path, path.parent):
            rule = "is there already, with the images, and may be their table"
            raise RecipeError.of(flag, arguments.flags[flag], rule, "another name or folder")


def _one_size(
    arguments: Arguments, opened: Opened, result: dict[str, Any], outcomes: Outcomes
) -> None:
    """Print an evaluation with its classes, and write the files that flags ask for."""
    about, confusion = opened.network.about, Confusion(outcomes)
    classes = [
        {
            "class": about.class_name(row.label),
            "images": row.images,
            "correct": row.correct,
            "top1_percent": row.top1_percent,
            "precision_percent": row.precision_percent,
            "recall_percent": row.top1_percent,
            "f1_percent": row.f1_percent,
        }
        for row in confusion.classes()
    ]
    wrong = [_cell(about, cell) for cell in confusion.mistakes(_SHOWN)]
    if "--json" in arguments:
        means = {name: mean._asdict() for name, mean in confusion.means().items()}
        print(json.dumps(result | means | {"classes": classes, "confusions": wrong}, indent=2))
    else:
        print("\n".join(_page(about, result, confusion.means(), classes, wrong)))
    write_csv(arguments, classes)
    if name := arguments.flags.get("--png"):
        cells = [_cell(about, cell) for cell in confusion.cells()]
        with opened_file("--png", name) as file:
            file.write(png(by_class(classes[:_DRAWN], cells)))
    if {"--images", "--gallery"} & arguments.flags.keys():
        loader = opened.open_images()
        try:
            _write_images(arguments, about, loader, outcomes)
        finally:
            loader.close()


def _cell(about: About, cell: Cell) -> dict[str, Any]:
    return {
        "class": about.class_name(cell.label),
        "taken_for": about.class_name(cell.taken_for),
        "images": cell.images,
    }


def _write_images(
    arguments: Arguments, about: About, images: EvalLoader, outcomes: Outcomes
) -> None:
    """Write a row for each image, and the page of the most confidently wrong ones."""
    if name := arguments.flags.get("--images"):
        with opened_file("--images", name) as file:
            file.write(csv_line(["path", "label", "prediction", "probability", "loss"]).encode())
            columns = zip(*(field.tolist() for field in outcomes), strict=True)
            for index, (label, best, probability, loss) in enumerate(columns):
                names = images.path(index), about.class_name(label), about.class_name(best)
                file.write(csv_line([*names, f"{probability:.6f}", f"{loss:.6f}"]).encode())
    if name := arguments.flags.get("--gallery"):
        wrong = int((outcomes.best != outcomes.labels).sum())
        shown = outcomes.most_wrong(_IN_GALLERY)
        text = f"{wrong:,} of {len(outcomes.labels):,} images were classified wrongly"
        if wrong > len(shown):
            text += f"; these are the {len(shown)} with the most probable wrong class"
        page = gallery("Most confidently wrong", text, _tiles(about, images, outcomes, shown))
        with opened_file("--gallery", name) as file:
            file.write(page.encode())


def _tiles(
    about: About, images: EvalLoader, outcomes: Outcomes, shown: Sequence[int]
) -> Iterator[Tile]:
    places = iter(shown)
    for batch in images.only(np.array(shown, np.int64)):
        for pixels in batch.pixels:
            place = next(places)
            label, best = int(outcomes.labels[place]), int(outcomes.best[place])
            names = images.path(place), about.class_name(label), about.class_name(best)
            probability = float(outcomes.probabilities[place])
            yield Tile(pixels.permute(1, 2, 0).numpy(force=True), *names, probability)


def _row(place: Path, recipe: Recipe, size: int, found: Evaluated) -> dict[str, Any]:
    top1, top5, loss, examples, balanced = found.metrics
    return {
        "network": str(place),
        "data": recipe.data.root,
        "eval_size": size,
        "eval_resize": recipe.data.resize_for(size),
        "flip": recipe.evaluation.flip,
        "top1_percent": top1,
        "top5_percent": top5,
        "balanced_percent": balanced,
        "calibration_error_percent": found.outcomes.calibration_error_percent,
        "loss": loss,
        "eval_examples": examples,
        "images_per_second": examples / found.seconds,
        "device": found.device,
    }


def _page(
    about: About,
    result: dict[str, Any],
    means: dict[str, Means],
    classes: list[dict[str, Any]],
    wrong: list[dict[str, Any]],
) -> list[str]:
    flip = ", each with its mirror image" if result["flip"] else ""
    facts = {
        "network": f"{about.title}, {about.num_classes:,} classes"
        + (f", recipe {about.recipe}" if about.recipe else ""),
        "images": f"{result['eval_examples']:,} of {result['data']}",
        "size": f"{result['eval_size']} px, cut from a shorter side of "
        f"{result['eval_resize']}{flip}",
        "top-1": f"{result['top1_percent']:.2f} %",
        "top-5": f"{result['top5_percent']:.2f} %",
        "balanced": f"{result['balanced_percent']:.2f} %, the mean over classes of their top-1",
        "loss": f"{result['loss']:.4f}",
        "ECE": f"{result['calibration_error_percent']:.2f} %, the expected calibration error of "
        "the probabilities",
        "speed": f"{rate(result['images_per_second'])} images/s on {result['device']}, "
        "decoding included",
    }
    worst = [
        {
            "TOP-1": f"{row['top1_percent']:.2f} %",
            "OF": f"{row['images']:,}",
            "PRECISION": f"{row['precision_percent']:.2f} %",
            "F1": f"{row['f1_percent']:.2f} %",
            "CLASS": printable(row["class"]),
        }
        for row in classes[:_SHOWN]
    ]
    confused = [
        {
            "IMAGES": f"{row['images']:,}",
            "OF": printable(row["class"]),
            "TAKEN FOR": printable(row["taken_for"]),
        }
        for row in wrong
    ]
    return [
        *(
            line
            for name, text in facts.items()
            for line in wrapped(text, line_width(), f"{name:<10}", " " * 10)
        ),
        "",
        "means over classes, in percent",
        *table([{"MEAN": name} | _cells(mean) for name, mean in means.items()], ("PRECISION",)),
        "",
        f"worst classes of {len(classes):,}",
        *table(worst, ("PRECISION", "F1")),
        *(["", "most common confusions", *table(confused)] if wrong else []),
    ]


def _cells(mean: Means) -> dict[str, str]:
    return {name.upper(): f"{value:.2f}" for name, value in mean._asdict().items()}


def _sizes(rows: list[dict[str, Any]]) -> list[str]:
    cells = [
        {
            "SIZE": str(row["eval_size"]),
            "OF": str(row["eval_resize"]),
            "TOP-1": f"{row['top1_percent']:.2f} %",
            "TOP-5": f"{row['top5_percent']:.2f} %",
            "LOSS": f"{row['loss']:.4f}",
            "IMAGES/S": rate(row["images_per_second"]),
        }
        for row in rows
    ]
    return table(cells, ("OF", "IMAGES/S"))
