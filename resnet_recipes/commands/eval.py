"""`resnet-recipes eval RUN|FILE`: the accuracy of a trained network, by class and by image size."""

import json
from pathlib import Path
from typing import Any

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.trained import named
from resnet_recipes.launch.evaluation import evaluate
from resnet_recipes.network.about import About
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.report.page.pictures import png
from resnet_recipes.report.text import csv_line, printable, rate
from resnet_recipes.training.trained import Evaluated

#: How many classes and confusions are printed.
_SHOWN = 10


def run(arguments: Arguments) -> int:
    """Evaluate, and print the result."""
    also = ("evaluation.sizes", "launch.gpus")
    opened = named(arguments.words, PAGES["eval"].example, also)
    place, network, recipe = opened
    sizes = recipe.evaluation.sizes
    if problems := [
        Problem(
            flag,
            arguments.flags[flag],
            f"is for one test size, but evaluation.sizes is {sizes}",
            "evaluation.sizes=[]",
        )
        for flag in ("--csv", "--png")
        if sizes and flag in arguments
    ]:
        raise RecipeError(problems)
    tried = sizes or [recipe.data.eval_size]
    code, found = evaluate(opened, tried, say)
    if code:
        return code
    rows = [_row(place, recipe, size, one) for size, one in zip(tried, found, strict=True)]
    if sizes:
        print(json.dumps(rows, indent=2) if "--json" in arguments else "\n".join(_table(rows)))
        return 0
    result, confusion = rows[0], found[0].confusion
    classes = [
        {
            "class": network.about.class_name(row.label),
            "images": row.images,
            "correct": row.correct,
            "top1_percent": row.top1_percent,
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
    for flag, write in (("--csv", _csv), ("--png", _png)):
        if file := arguments.flags.get(flag):
            _written(flag, Path(file), write(classes))
    if "--json" in arguments:
        print(json.dumps(result | {"classes": classes, "confusions": wrong}, indent=2))
    else:
        print("\n".join(_page(network.about, result, classes, wrong)))
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
        "loss": loss,
        "eval_examples": examples,
        "images_per_second": examples / found.seconds,
        "device": found.device,
    }


def _page(
    about: About,
    result: dict[str, Any],
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
        f"loss      {result['loss']:.4f}",
        f"speed     {rate(result['images_per_second'])} images/s on {result['device']}, "
        "decoding included",
        "",
        f"worst classes of {len(classes):,}",
        *(
            f"  {row['top1_percent']:6.2f} % of {row['images']:<5,} {printable(row['class'])}"
            for row in classes[:_SHOWN]
        ),
        *(["", "most common confusions"] if wrong else []),
        *(
            f"  {row['images']:6,} {printable(row['class'])} taken for "
            f"{printable(row['taken_for'])}"
            for row in wrong
        ),
    ]


def _table(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{'SIZE':>5} {'OF':>5} {'TOP-1':>9} {'TOP-5':>9} {'LOSS':>8} {'IMAGES/S':>9}"] + [
        f"{row['eval_size']:>5} {row['eval_resize']:>5} {row['top1_percent']:>7.2f} % "
        f"{row['top5_percent']:>7.2f} % "
        f"{row['loss']:>8.4f} {rate(row['images_per_second']):>9}"
        for row in rows
    ]


def _csv(classes: list[dict[str, Any]]) -> bytes:
    rows = [classes[0], *(row.values() for row in classes)]
    return "".join(map(csv_line, rows)).encode()


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


def _written(flag: str, path: Path, content: bytes) -> None:
    try:
        with atomic.replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise NotReadyError(
            [Problem(flag, str(path), f"cannot be written: {error.strerror}")]
        ) from None
