"""The plots of the report as Vega-Lite specifications, drawn by the browser or into PNG files."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from resnet_recipes.report.page.vega import (
    COLOURS,
    FAINT,
    INK,
    LINES,
    SHAPES,
    VISIBLE,
    WHOLE,
    ZOOM,
    Spec,
    dashes,
    nominal,
    plot,
    quantity,
    tooltip,
)

Row = dict[str, Any]


def accuracy(
    runs: Sequence[Row], published: Sequence[Row], x: str = "minutes", title: str = "minutes"
) -> Spec:
    """Return top-1 against `x`, on a logarithmic axis.

    The runs and their Pareto front over the published results.

    Rows have recipe, top1_percent, `x`, and what hovering shows.
    """
    runs, published = ([row for row in rows if row[x]] for rows in (runs, published))
    own = sorted({row["recipe"] for row in runs})
    recipes = [*own, *sorted({row["recipe"] for row in published} - set(own))]
    encoding = {
        "x": quantity(x, title, type="log", nice=False, padding=24)
        | {"axis": {"format": ".3~r", "tickCount": 8}},
        "y": quantity("top1_percent", "top-1 accuracy (%)", zero=False, nice=True)
        | {"axis": {"format": ".4~r"}},
        "shape": nominal("recipe", recipes, SHAPES),
        "color": nominal("recipe", recipes, COLOURS),
    }
    layers = _published_layers(published, encoding, x, is_background=bool(runs)) * bool(published)
    layers += _run_layers(runs, encoding, x) * bool(runs)
    return plot(f"Top-1 accuracy against {title}", {"layer": layers})


def _published_layers(
    rows: Sequence[Row], encoding: Spec, x: str, is_background: bool
) -> list[Spec]:
    """Return points for published results, and one label per recipe.

    Those behind the user's runs are grey.
    """
    shown = ("recipe", "label", "top1_percent", "epochs", x, "hardware", "source", "note")
    colour, strength = ({"color": {"value": INK}}, 0.6) if is_background else ({}, 1)
    best = {row["recipe"]: row for row in sorted(rows, key=lambda row: row["top1_percent"])}
    labels = sorted(best.values(), key=lambda row: row[x])
    text = {"type": "text", "fontSize": 10, "color": INK, "opacity": FAINT}
    # neighbours alternate
    sides = ({"align": "right", "dx": -4, "dy": -9}, {"align": "left", "dx": 4, "dy": 11})
    return [
        {
            "data": {"values": list(rows)},
            "transform": [VISIBLE],
            "params": [] if is_background else [ZOOM],
            "mark": {"type": "point", "size": 55, "filled": False, "opacity": strength},
            "encoding": encoding | colour | {"tooltip": tooltip(shown)},
        },
        *(
            {
                "data": {"values": labels[index::2]},
                "transform": [VISIBLE],
                "mark": text | side,
                "encoding": {"x": encoding["x"], "y": encoding["y"], "text": {"field": "recipe"}},
            }
            for index, side in enumerate(sides)
        ),
    ]


def _run_layers(rows: Sequence[Row], encoding: Spec, x: str) -> list[Spec]:
    """Return the user's runs as filled points, and the front of those that no other run beats."""
    shown = ("name", "recipe", "top1_percent", "epochs", x, "hardware", "command")
    return [
        {
            "data": {"values": list(pareto(rows, x))},
            "transform": [VISIBLE],
            "mark": {
                "type": "line",
                "interpolate": "step-after",
                "color": INK,
                "strokeDash": [5, 3],
            },
            "encoding": {"x": encoding["x"], "y": encoding["y"]},
        },
        {
            "data": {"values": list(rows)},
            "transform": [VISIBLE],
            "params": [ZOOM],
            "mark": {"type": "point", "size": 80, "filled": True, "opacity": 0.9},
            "encoding": encoding | {"tooltip": tooltip(shown)},
        },
    ]


def tradeoff(groups: Sequence[Row], x: str, title: str) -> Spec:
    """Return top-1 against `x` by recipe.

    Rows have recipe, `x`, mean_top1_percent, low, high, seeds.
    """
    recipes = sorted({row["recipe"] for row in groups})
    position = {
        "x": quantity(x, title, zero=False, padding=20) | ({} if x == "pflops" else WHOLE),
        "color": nominal("recipe", recipes, COLOURS) | {"legend": LINES},
    }
    height = {"y": quantity("mean_top1_percent", "top-1 accuracy (%)", zero=False, padding=12)}
    dash = {"strokeDash": dashes("recipe", recipes)}
    shown = tooltip(("recipe", "epochs", "mean_top1_percent", "low", "high", "minutes", "seeds"))
    bar = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
    layers = [
        {"mark": {"type": "line"}, "encoding": position | height | dash},
        {"mark": {"type": "rule"}, "encoding": position | bar},
        {
            "mark": {"type": "point", "filled": True, "size": 60},
            "params": [ZOOM],
            "encoding": position | height | {"tooltip": shown},
        },
    ]
    data = {"data": {"values": list(groups)}, "transform": [VISIBLE], "layer": layers}
    return plot(f"Top-1 accuracy against {title} by recipe", data)


def curve(points: Sequence[Row], y: str, title: str) -> Spec:
    """Return one measured quantity over the epochs of several runs, one line per run.

    Rows have name, recipe, epoch and `y`.
    """
    names = sorted({row["name"] for row in points})
    shown = ("name", "recipe", "epoch", y)
    values = [{key: row[key] for key in shown} for row in points if row.get(y) is not None]
    encoding = {
        "x": quantity("epoch", "epoch") | WHOLE,
        # one value alone gets no ticks of its own, and is not rounded to a whole number
        "y": quantity(y, title, zero=y in ("lr", "data_wait_share"), padding=8)
        | {"axis": {"format": ".4~r"}},
        "color": nominal("name", names, COLOURS) | {"legend": LINES},
        "strokeDash": dashes("name", names),
        "tooltip": tooltip(("name", "epoch", y)),
    }
    body = {
        "data": {"values": values},
        "transform": [VISIBLE],
        "params": [ZOOM],
        "mark": {"type": "line", "point": len(values) < 200},
        "encoding": encoding,
    }
    return plot(f"{title[0].upper()}{title[1:]} over the epochs", body, height=200)


def phases(rows: Sequence[Row]) -> Spec:
    """Return where the minutes of each run went; rows have name, recipe, phase, rank, minutes."""
    order = list(dict.fromkeys(row["phase"] for row in rows))
    encoding = {
        "y": {
            "field": "name",
            "type": "nominal",
            "title": None,
            "sort": None,
            "axis": {"labelLimit": {"expr": "width < 300 ? 120 : 260"}},
        },
        "x": {"field": "minutes", "type": "quantitative", "title": "minutes", "stack": "zero"},
        "color": nominal("phase", order, COLOURS) | {"legend": {"columns": 1}},
        "order": {"field": "rank", "type": "quantitative"},
        "tooltip": tooltip(("name", "phase", "minutes")),
    }
    bars = len({row["name"] for row in rows})
    body = {"data": {"values": list(rows)}, "transform": [VISIBLE], "mark": "bar"}
    return plot("Where the time went", body | {"encoding": encoding}, height=max(60, 26 * bars))


def pareto(rows: Iterable[Row], x: str) -> Iterable[Row]:
    """Yield the rows that no other row beats in both, by ascending `x`."""
    best = float("-inf")
    for row in sorted(rows, key=lambda row: (row[x], -row["top1_percent"])):
        if row["top1_percent"] > best:
            best = row["top1_percent"]
            yield row


#: Pixels of a row of the matrix.
_ROW = 18


def by_class(accuracy: Sequence[dict], cells: Iterable[dict]) -> Spec:
    """Return the plot of the classes of `accuracy`, whose rows have class, images and top-1.

    `cells` are of the confusion matrix: class, the class it was taken for, and images; those of
    other classes are left out.
    """
    images = {row["class"]: row["images"] for row in accuracy}
    shown = [
        cell | {"percent": 100 * cell["images"] / images[cell["class"]]}
        for cell in cells
        if {cell["class"], cell["taken_for"]} <= images.keys()
    ]
    y = _classes("class", images, "class")
    share = {"field": "percent", "type": "quantitative", "title": "% of row"}
    matrix = {
        "data": {"values": shown},
        "mark": "rect",
        "encoding": {
            "y": y,
            "x": _classes("taken_for", images, "taken for"),
            "color": share | {"scale": {"domain": [0, 100], "scheme": "blues"}},
        },
        "width": {"step": _ROW},
        "height": {"step": _ROW},
    }
    top1 = {"field": "top1_percent", "type": "quantitative", "title": "top-1 (%)"}
    bars = {
        "data": {"values": accuracy},
        "mark": "bar",
        "encoding": {
            "y": y | {"axis": None},
            "x": top1 | {"scale": {"domain": [0, 100]}},
        },
        "width": 200,
        "height": {"step": _ROW},
    }
    return {"hconcat": [matrix, bars]}


def _classes(field: str, names: Collection[str], title: str) -> Spec:
    return {
        "field": field,
        "type": "nominal",
        "sort": None,
        "title": title,
        "scale": {"domain": list(names)},
    }
