"""`resnet-recipes eval RUN|FILE`: the accuracy of a trained network, by class and by image size."""

import json
from pathlib import Path
from typing import Any

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.table import table
from resnet_recipes.commands.trained import named
from resnet_recipes.commands.written import opened_file, write_csv
from resnet_recipes.launch.evaluation import evaluate
from resnet_recipes.network.about import About
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.report.page.pictures import png
from resnet_recipes.report.text import printable, rate
from resnet_recipes.training.confusion import Means
from resnet_recipes.training.trained import Evaluated

#: How many classes and confusions are printed.
_SHOWN = 10


def run(arguments: Arguments) -> int:
    """Evaluate, and print the result."""
    also = ("evaluation.sizes", "launch.gpus")
    opened = named(arguments.words, PAGES["eval"].example, also)
    place, network, recipe = opened
    sizes = recipe.evaluation.sizes
    if sizes and "--png" in arguments:
        rule = f"is for one test size, but evaluation.sizes is {sizes}"
        raise RecipeError(
            [Problem("--png", arguments.flags["--png"], rule, "'evaluation.sizes=[]'")]
        )
    tried = sizes or [recipe.data.eval_size]
    code, found = evaluate(opened, tried, say)
    if code:
        return code
    rows = [_row(place, recipe, size, one) for size, one in zip(tried, found, strict=True)]
    if sizes:
        print(json.dumps(rows, indent=2) if "--json" in arguments else "\n".join(_sizes(rows)))
        write_csv(arguments, rows)
        return 0
    result, confusion = rows[0], found[0].confusion
    classes = [
        {
            "class": network.about.class_name(row.label),
            "images": row.images,
            "correct": row.correct,
            "top1_percent": row.top1_percent,
            "precision_percent": row.precision_percent,
            "recall_percent": row.top1_percent,
            "f1_percent": row.f1_percent,
        }
        for row in confusion.classes()
    ]
    wrong = [
        {
            "class": network.about.class_name(row.label),
            "taken_for": network.about.class_name(row.taken_for),
            "images": row.images,
        }
        for row in confusion.mistakes(_SHOWN)
    ]
    if "--json" in arguments:
        means = {name: mean._asdict() for name, mean in confusion.means().items()}
        print(json.dumps(result | means | {"classes": classes, "confusions": wrong}, indent=2))
    else:
        print("\n".join(_page(network.about, result, confusion.means(), classes, wrong)))
    write_csv(arguments, classes)
    if name := arguments.flags.get("--png"):
        with opened_file("--png", name) as file:
            file.write(_png(classes))
    return 0


def _row(place: Path, recipe: Recipe, size: int, found: Evaluated) -> dict[str, Any]:
    top1, top5, loss, examples = found.metrics
    return {
        "network": str(place),
        "data": recipe.data.root,
        "eval_size": size,
        "eval_resize": recipe.data.resize_for(size),
        "flip": recipe.evaluation.flip,
        "top1_percent": top1,
        "top5_percent": top5,
        "balanced_percent": found.confusion.balanced_percent,
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
    surgery = "".join(f" + {name}" for name in about.surgery)
    return [
        f"network   {about.architecture}{surgery}, {about.num_classes:,} classes"
        + (f", recipe {printable(about.recipe)}" if about.recipe else ""),
        f"images    {result['eval_examples']:,} of {printable(result['data'])}",
        f"size      {result['eval_size']} px, cut from a shorter side of "
        f"{result['eval_resize']}{flip}",
        f"top-1     {result['top1_percent']:.2f} %",
        f"top-5     {result['top5_percent']:.2f} %",
        f"balanced  {result['balanced_percent']:.2f} %, the mean over classes of their top-1",
        f"loss      {result['loss']:.4f}",
        f"speed     {rate(result['images_per_second'])} images/s on {result['device']}, "
        "decoding included",
        "",
        "means over classes, in percent",
        *table([{"MEAN": name} | _cells(mean) for name, mean in means.items()], ("PRECISION",)),
        "",
        f"worst classes of {len(classes):,}",
        *(
            f"  {row['top1_percent']:6.2f} % of {row['images']:<5,} precision "
            f"{row['precision_percent']:6.2f} %, F1 {row['f1_percent']:6.2f} %  "
            f"{printable(row['class'])}"
            for row in classes[:_SHOWN]
        ),
        *(["", "most common confusions"] if wrong else []),
        *(
            f"  {row['images']:6,} {printable(row['class'])} taken for "
            f"{printable(row['taken_for'])}"
            for row in wrong
        ),
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


def _png(classes: list[dict[str, Any]]) -> bytes:
    """Draw a bar for each of the forty worst classes."""
    axes = {
        "y": {"field": "class", "type": "nominal", "sort": None, "title": None},
        "x": {
            "field": "top1_percent",
            "type": "quantitative",
            "title": "top-1 (%)",
            "scale": {"domain": [0, 100]},
        },
    }
    chart = {"data": {"values": classes[:40]}, "mark": "bar", "encoding": axes, "width": 500}
    return png(chart)
