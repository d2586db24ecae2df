"""The plots of the report, as Vega-Lite specifications: plain dictionaries, drawn by the browser or as PNG."""

from collections.abc import Iterable, Sequence
from typing import Any

Spec = dict[str, Any]
Row = dict[str, Any]

ALL = "all machines"

#: What most results were published on, and what a plot shows first.
USUAL = "8x A100"

#: Okabe and Ito's palette, whose colours also differ in lightness; shapes tell recipes apart in black and white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7A5195", "#8C564B", "#5A7D2A")
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
    "wedge",
    "M-1,-1L1,1M1,-1L-1,1",
    "M0,-1L0,1M-1,0L1,0",
)
SHADES = ("#08306b", "#2879b9", "#73b3d8", "#c8ddf0", "#999999", "#dddddd")
_GREY = "#8a8a8a"

_CONFIG: Spec = {
    "font": "Helvetica, Arial, sans-serif",
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": "#e6e6e6",
        "domainColor": "#444",
    },
    "legend": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "bottom",
        "columns": {"expr": "width < 480 ? 2 : 4"},
    },
    "view": {"stroke": None},
}


def accuracy(runs: Sequence[Row], published: Sequence[Row], x: str, title: str) -> Spec:
    """Return top-1 against `x` (a key of both kinds of rows): the runs with their front over the published results.

    Rows have recipe, top1_percent, `x` (None where unknown), and what hovering shows (epochs, hardware, source ...).
    """
    runs = [row for row in runs if row.get(x) and row["top1_percent"] is not None]
    published = [row for row in published if row.get(x)]
    recipes = sorted({row["recipe"] for row in (*runs, *published)})
    encoding = {
        "x": _quantity(x, title, type="log", nice=False, padding=24) | {"axis": {"format": "~g", "tickCount": 8}},
        "y": _quantity("top1_percent", "top-1 accuracy (%)", zero=False, nice=True),
        "shape": _names("recipe", recipes, SHAPES),
        "color": _names("recipe", recipes, COLOURS),
    }
    layers = _published_layers(published, encoding, x, is_background=bool(runs)) if published else []
    if runs:
        layers += _run_layers(runs, encoding, x)
    return _spec({"params": [_machine_switch(published)] if published else [], "layer": layers})


def _published_layers(rows: Sequence[Row], encoding: Spec, x: str, is_background: bool) -> list[Spec]:
    """Return points for published results, grey behind the user's own, and one label a recipe."""
    source = {"values": list(rows)}
    chosen = {"filter": f"machine == '{ALL}' || datum.machine == machine"}
    shown = ("recipe", "label", "top1_percent", "epochs", x, "clock", "hardware", "source", "note")
    colour = {"color": {"value": _GREY}} if is_background else {}
    text = {"type": "text", "align": "right", "dx": -2, "dy": -9, "fontSize": 10, "color": _GREY}
    return [
        {
            "data": source,
            "transform": [chosen],
            "mark": {"type": "point", "size": 55, "filled": False},
            "encoding": encoding | colour | {"tooltip": _tooltip(shown)},
        },
        {
            "data": source,
            "transform": [chosen, *_most_accurate()],
            "mark": text,
            "encoding": {"x": encoding["x"], "y": encoding["y"], "text": {"field": "recipe"}},
        },
    ]


def _run_layers(rows: Sequence[Row], encoding: Spec, x: str) -> list[Spec]:
    """Return the user's runs as filled points, and the front of those that no other beats."""
    shown = ("name", "recipe", "top1_percent", "epochs", x, "hardware", "command")
    return [
        {
            "data": {"values": list(pareto(rows, x))},
            "mark": {"type": "line", "interpolate": "step-after", "color": "#444", "strokeDash": [5, 3]},
            "encoding": {"x": encoding["x"], "y": encoding["y"]},
        },
        {
            "data": {"values": list(rows)},
            "mark": {"type": "point", "size": 80, "filled": True, "opacity": 0.9},
            "encoding": encoding | {"tooltip": _tooltip(shown)},
        },
    ]


def _machine_switch(published: Sequence[Row]) -> Spec:
    machines = [ALL, *sorted({row["machine"] for row in published})]
    first = USUAL if USUAL in machines else ALL
    return {
        "name": "machine",
        "value": first,
        "bind": {"input": "select", "options": machines, "name": "published on "},
    }


def tradeoff(groups: Sequence[Row]) -> Spec:
    """Return top-1 against minutes by recipe; rows have recipe, minutes, mean_top1_percent, low, high, seeds."""
    recipes = sorted({row["recipe"] for row in groups})
    position = {"x": _quantity("minutes", "training minutes"), "color": _names("recipe", recipes, COLOURS)}
    height = {"y": _quantity("mean_top1_percent", "top-1 accuracy (%)")}
    dash = {"strokeDash": {"field": "recipe", "type": "nominal", "title": None, "scale": {"domain": recipes}}}
    shown = _tooltip(("recipe", "epochs", "mean_top1_percent", "low", "high", "minutes", "seeds"))
    bar = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
    layers = [
        {"mark": {"type": "line"}, "encoding": position | height | dash},
        {"mark": {"type": "rule"}, "encoding": position | bar},
        {"mark": {"type": "point", "filled": True, "size": 60}, "encoding": position | height | {"tooltip": shown}},
    ]
    return _spec({"data": {"values": list(groups)}, "layer": layers})


def curve(points: Sequence[Row], y: str, title: str) -> Spec:
    """Return one measured quantity over the epochs of several runs, one line a run; rows have name, epoch and `y`."""
    names = sorted({row["name"] for row in points})
    values = [{"name": row["name"], "epoch": row["epoch"], y: row[y]} for row in points if row.get(y) is not None]
    encoding = {
        "x": {"field": "epoch", "type": "quantitative", "title": "epoch"},
        "y": _quantity(y, title),
        "color": _names("name", names, COLOURS),
        "strokeDash": {"field": "name", "type": "nominal", "title": None, "scale": {"domain": names}},
        "opacity": {"condition": {"param": "shown", "value": 1}, "value": 0.1},
        "tooltip": _tooltip(("name", "epoch", y)),
    }
    select = {"name": "shown", "select": {"type": "point", "fields": ["name"]}, "bind": "legend"}
    mark = {"type": "line", "point": len(values) < 200}
    return _spec({"data": {"values": values}, "params": [select], "mark": mark, "encoding": encoding}, height=200)


def phases(rows: Sequence[Row]) -> Spec:
    """Return the minutes of each run by what they went into; rows have name, phase, rank, minutes."""
    order = list(dict.fromkeys(row["phase"] for row in rows))
    encoding = {
        "y": {"field": "name", "type": "nominal", "title": None, "sort": None, "axis": {"labelLimit": 160}},
        "x": {"field": "minutes", "type": "quantitative", "title": "minutes", "stack": "zero"},
        "color": _names("phase", order, SHADES),
        "order": {"field": "rank", "type": "quantitative"},
        "tooltip": _tooltip(("name", "phase", "minutes")),
    }
    bars = len({row["name"] for row in rows})
    mark = {"type": "bar", "stroke": "white"}
    return _spec({"data": {"values": list(rows)}, "mark": mark, "encoding": encoding}, height=max(60, 26 * bars))


def pareto(rows: Iterable[Row], x: str) -> Iterable[Row]:
    """Yield the rows that no other row beats in both `x` (less is better) and accuracy, by `x`."""
    best = float("-inf")
    for row in sorted(rows, key=lambda row: (row[x], -row["top1_percent"])):
        if row["top1_percent"] > best:
            best = row["top1_percent"]
            yield {x: row[x], "top1_percent": best}


def _most_accurate() -> list[Spec]:
    """Return the transforms that leave one labelled point a recipe: its most accurate one."""
    return [
        {
            "window": [{"op": "row_number", "as": "place"}],
            "groupby": ["recipe"],
            "sort": [{"field": "top1_percent", "order": "descending"}],
        },
        {"filter": "datum.place == 1"},
    ]


def _quantity(field: str, title: str, **scale: object) -> Spec:
    return {"field": field, "type": "quantitative", "title": title, "scale": scale or {"zero": False}}


def _names(field: str, domain: Sequence[str], values: Sequence[str]) -> Spec:
    """Return a channel that tells names apart by colour or shape."""
    scale = {"domain": list(domain), "range": [values[i % len(values)] for i in range(len(domain))]}
    return {"field": field, "type": "nominal", "title": None, "scale": scale}


def _tooltip(fields: Iterable[str]) -> list[Spec]:
    numbers = {"top1_percent": ".2f", "mean_top1_percent": ".2f", "minutes": ".4~g", "cost": ".2f", "epoch": ".3~f"}
    return [
        {
            "field": name,
            "title": name.removesuffix("_percent").replace("_", " "),
            **({"format": numbers[name]} if name in numbers else {}),
        }
        for name in fields
    ]


def _spec(body: Spec, height: int = 340) -> Spec:
    return {
        "width": "container",
        "height": height,
        "config": _CONFIG,
        "autosize": {"type": "fit-x", "contains": "padding"},
        **body,
    }
