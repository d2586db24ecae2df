"""The table of `resnet-recipes estimate` without a recipe: what each recipe offers."""

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.text import clock_time, wrapped
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import chosen, is_named
from resnet_recipes.commands.printing import or_dash, say, show, table, width
from resnet_recipes.recipe.library import Library

if TYPE_CHECKING:
    from resnet_recipes.jobs.offers import Offer, Offers


def print_offers(arguments: Arguments, price: float | None) -> None:
    """Print what the recipes, or the one that is named, offer: all, or those that do."""
    from resnet_recipes.jobs.offers import offered
    from resnet_recipes.report.page.charts import pareto

    names = [chosen(arguments)[0]] if is_named(arguments) else Library(arguments.recipes).names()
    words = [word for word in arguments.words if not word.startswith("recipe=")]
    limits = [f"budget={arguments.flags['--within']}"] if "--within" in arguments else []
    limits += [f"launch.price={price}"] if price is not None else []
    offers = offered([*words, *limits], arguments.recipes, names, _reach(arguments), say)
    rows = [_values(offer, words, price) for offer in offers.found]
    known = [row for row in rows if row["top1_percent"] and row["minutes"]]
    front = [id(row) for row in pareto(known, "minutes")]
    rows = [row | {"front": id(row) in front} for row in rows]
    asked = bool({"--within", "--reach"} & arguments.flags.keys())
    show(arguments, rows, _lines(offers, rows, asked), rows)


def _reach(arguments: Arguments) -> float | None:
    """Return the accuracy to reach, in percent. Raises RecipeError."""
    text = arguments.flags.get("--reach")
    if text is None:
        return None
    number = text.removesuffix("%")
    if "--within" in arguments:
        rule = "asks for the least time, and --within gives a time"
        raise RecipeError.of("--reach", text, rule, "leave one of them out")
    if not (number.replace(".", "", 1).isdecimal() and 1 <= float(number) <= 100):
        raise RecipeError.of("--reach", text, "must be a percentage, as in 78", "--reach 78")
    return float(number)


def _values(offer: "Offer", words: Sequence[str], price: float | None) -> dict[str, Any]:
    """Return what is known of an offer, for programs."""
    recipe, made = offer.plan.recipe, offer.made
    price = recipe.launch.price if price is None else price
    epochs = float(recipe.max_duration.removesuffix("ep"))
    command = ["resnet-train", recipe.name, *words, f"epochs={epochs:g}"]
    return {
        "recipe": recipe.name,
        "epochs": epochs,
        "minutes": made and made.total_minutes,
        "most_minutes": made and made.most,
        "measured": offer.is_measured,
        "cost": made.cost(price) if made and price is not None else None,
        "top1_percent": offer.accuracy and offer.accuracy.top1,
        "accuracy": offer.accuracy.source if offer.accuracy else "",
        "command": shlex.join(word for word in command if not word.startswith("budget=")),
    }


def _lines(offers: "Offers", rows: Sequence[dict[str, Any]], asked: bool) -> Iterator[str]:
    cells = [
        {
            "": "*" if row["front"] else "",
            "RECIPE": row["recipe"],
            "EPOCHS": f"{row['epochs']:g}",
            "TIME": or_dash(row["minutes"], _time if row["measured"] else _guess),
            "COST": or_dash(row["cost"], "{:,.2f}".format),
            "TOP-1": or_dash(row["top1_percent"], "{:.1f} %".format),
            "ACCURACY": row["accuracy"] or "not known",
        }
        for row in rows
    ]
    if not any(row["cost"] is not None for row in rows):
        cells = [{head: cell for head, cell in row.items() if head != "COST"} for row in cells]
    yield from table(cells, ("ACCURACY", "COST")) if cells else ["No recipe does."]
    if asked and rows:
        yield from ("", *(row["command"] for row in rows))
    yield ""
    if any(row["front"] for row in rows):
        yield "* no other is more accurate in less time"
    elif rows:
        yield "Accuracy on these images is not known before a run."
        if asked:
            yield f"Best first: {offers.rule}."
    if rows and not all(row["measured"] for row in rows):
        yield "~ not measured: `resnet-recipes estimate NAME` measures a recipe on this machine"
    for reason in dict.fromkeys(offers.left_out.values()):
        names = [name for name, why in offers.left_out.items() if why == reason]
        yield from wrapped(f"left out: {', '.join(names)}: {reason}", width(), rest="    ")


def _time(minutes: float) -> str:
    return clock_time(60 * minutes)


def _guess(minutes: float) -> str:
    return f"~{_time(minutes)}"
