"""The plots of the report as Vega-Lite specifications, drawn by the browser or into PNG files."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from resnet_recipes.report.page.vega import (
    COLOURS,
    GREY,
    LINES,
    SHADES,
    SHAPES,
    WHOLE,
    Spec,
    dashes,
    nominal,
    plot,
    quantity,
    tooltip,
)

Row = dict[str, Any]

ALL, NONE = "all machines", "hidden"

#: The machine of most published results, which a plot shows first.
USUAL = "8x A100"

#: What minutes include: training alone, evaluations too, or everything.
CLOCKS = {"papers": "the papers' clock", "mlperf": "MLPerf's clock", "wall": "the wall clock"}


def accuracy(
    runs: Sequence[Row],
    published: Sequence[Row],
    prices: tuple[float, float] | None = None,
    hides: bool = False,
) -> Spec:
    """Return top-1 against minutes by one of three clocks: the runs and their Pareto front over the published results.

    Runs have recipe, top1_percent, minutes by each of CLOCKS (None where unknown), and what
    hovering shows (epochs, hardware, command). Published results have minutes by one clock; `hides`
    shows them only on request. With two prices per hour, of the runs' machine and of the published
    one, the axis is cost.
    """
    runs = [
        row
        for row in runs
        if row["top1_percent"] is not None and any(row[clock] for clock in CLOCKS)
    ]
    published = [row for row in published if row["minutes"]]
    own = sorted({row["recipe"] for row in runs})
    recipes = [*own, *sorted({row["recipe"] for row in published} - set(own))]
    x, title = ("cost", "cost") if prices else ("minutes", "minutes")
    encoding = {
        "x": quantity(x, title, type="log", nice=False, padding=24)
        | {"axis": {"format": "~g", "tickCount": 8}},
        "y": quantity("top1_percent", "top-1 accuracy (%)", zero=False, nice=True),
        "shape": nominal("recipe", recipes, SHAPES),
        "color": nominal("recipe", recipes, COLOURS),
    }
    for channel in ("shape", "color") if published else ():
        encoding[channel]["legend"] = {
            "values": {"expr": f"machine == '{NONE}' ? {json.dumps(own)} : {json.dumps(recipes)}"}
        }
    price, published_price = prices or (0.0, 0.0)
    layers = (
        _published_layers(published, encoding, published_price, is_background=bool(runs))
        if published
        else []
    )
    if runs:
        layers += _run_layers(runs, encoding, price)
    switches = [_clock_switch()] + (
        [_machine_switch(published, bool(runs), hides)] if published else []
    )
    return plot({"params": switches, "layer": layers})


def _published_layers(
    rows: Sequence[Row], encoding: Spec, price: float, is_background: bool
) -> list[Spec]:
    """Return points for published results, grey if they are behind the user's runs, and one label per recipe."""
    chosen = [{"filter": f"machine == '{ALL}' || datum.machine == machine"}, *_by_clock(price)]
    shown = (
        "recipe",
        "label",
        "top1_percent",
        "epochs",
        "minutes",
        *(["cost"] if price else []),
        "hardware",
        "source",
        "note",
    )
    colour = {"color": {"value": GREY}} if is_background else {}
    text = {"type": "text", "fontSize": 10, "color": GREY}
    # neighbours alternate
    sides = ({"align": "right", "dx": -4, "dy": -9}, {"align": "left", "dx": 4, "dy": 11})
    return [
        {
            "data": {"values": list(rows)},
            "transform": chosen,
            "mark": {"type": "point", "size": 55, "filled": False},
            "encoding": encoding | colour | {"tooltip": tooltip(shown)},
        },
        *(
            {
                "data": {"values": list(rows)},
                "transform": [
                    *chosen,
                    *_most_accurate(),
                    {"filter": f"datum.order % 2 == {index}"},
                ],
                "mark": text | side,
                "encoding": {"x": encoding["x"], "y": encoding["y"], "text": {"field": "recipe"}},
            }
            for index, side in enumerate(sides)
        ),
    ]


def _run_layers(rows: Sequence[Row], encoding: Spec, price: float) -> list[Spec]:
    """Return the user's runs as filled points, and the front of those that no other run beats."""
    shown = (
        "name",
        "recipe",
        "top1_percent",
        "epochs",
        "minutes",
        *(["cost"] if price else []),
        "hardware",
        "command",
    )
    fronts = [point | {"clock": clock} for clock in CLOCKS for point in pareto(rows, clock)]
    return [
        {
            "data": {"values": fronts},
            "transform": _by_clock(price),
            "mark": {
                "type": "line",
                "interpolate": "step-after",
                "color": "#444",
                "strokeDash": [5, 3],
            },
            "encoding": {"x": encoding["x"], "y": encoding["y"]},
        },
        {
            "data": {"values": list(rows)},
            "transform": [{"fold": list(CLOCKS), "as": ["clock", "minutes"]}, *_by_clock(price)],
            "mark": {"type": "point", "size": 80, "filled": True, "opacity": 0.9},
            "encoding": encoding | {"tooltip": tooltip(shown)},
        },
    ]


def _by_clock(price: float) -> list[Spec]:
    """Return the transforms that keep the rows of the chosen clock, with their cost at a price per hour."""
    money = [{"calculate": f"datum.minutes / 60 * {price!r}", "as": "cost"}] if price else []
    return [{"filter": "datum.clock == clock && datum.minutes > 0"}, *money]


def _clock_switch() -> Spec:
    bind = {
        "input": "select",
        "options": list(CLOCKS),
        "labels": list(CLOCKS.values()),
        "name": "minutes by ",
    }
    return {"name": "clock", "value": next(iter(CLOCKS)), "bind": bind}


def _machine_switch(published: Sequence[Row], is_background: bool, hides: bool) -> Spec:
    machines = [*[NONE] * is_background, ALL, *sorted({row["machine"] for row in published})]
    first = NONE if hides else USUAL if USUAL in machines else ALL
    return {
        "name": "machine",
        "value": first,
        "bind": {"input": "select", "options": machines, "name": "published results: "},
    }


def tradeoff(groups: Sequence[Row], x: str, title: str) -> Spec:
    """Return top-1 against `x` by recipe.

    Rows have recipe, `x`, mean_top1_percent, low, high, seeds.
    """
    recipes = sorted({row["recipe"] for row in groups})
    position = {
        "x": quantity(x, title, zero=False, padding=20) | ({} if x == "pflops" else WHOLE),
        "color": nominal("recipe", recipes, COLOURS) | {"legend": LINES},
    }
    height = {"y": quantity("mean_top1_percent", "top-1 accuracy (%)")}
    dash = {"strokeDash": dashes("recipe", recipes)}
    shown = tooltip(("recipe", "epochs", "mean_top1_percent", "low", "high", "minutes", "seeds"))
    bar = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
    layers = [
        {"mark": {"type": "line"}, "encoding": position | height | dash},
        {"mark": {"type": "rule"}, "encoding": position | bar},
        {
            "mark": {"type": "point", "filled": True, "size": 60},
            "encoding": position | height | {"tooltip": shown},
        },
    ]
    return plot({"data": {"values": list(groups)}, "layer": layers})


def curve(points: Sequence[Row], y: str, title: str) -> Spec:
    """Return one measured quantity over the epochs of several runs, one line per run.

    Rows have name, epoch and `y`.
    """
    names = sorted({row["name"] for row in points})
    values = [
        {"name": row["name"], "epoch": row["epoch"], y: row[y]}
        for row in points
        if row.get(y) is not None
    ]
    encoding = {
        "x": quantity("epoch", "epoch") | WHOLE,
        "y": quantity(y, title),
        "color": nominal("name", names, COLOURS) | {"legend": LINES},
        "strokeDash": dashes("name", names),
        "opacity": {"condition": {"param": "shown", "value": 1}, "value": 0.1},
        "tooltip": tooltip(("name", "epoch", y)),
    }
    select = {"name": "shown", "select": {"type": "point", "fields": ["name"]}, "bind": "legend"}
    mark = {"type": "line", "point": len(values) < 200}
    return plot(
        {"data": {"values": values}, "params": [select], "mark": mark, "encoding": encoding},
        height=200,
    )


def phases(rows: Sequence[Row]) -> Spec:
    """Return what the minutes of each run were spent on; rows have name, phase, rank, minutes."""
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
        "color": nominal("phase", order, SHADES) | {"legend": {"columns": 1}},
        "order": {"field": "rank", "type": "quantitative"},
        "tooltip": tooltip(("name", "phase", "minutes")),
    }
    bars = len({row["name"] for row in rows})
    mark = {"type": "bar", "stroke": "white"}
    return plot(
        {"data": {"values": list(rows)}, "mark": mark, "encoding": encoding},
        height=max(60, 26 * bars),
    )


def pareto(rows: Iterable[Row], clock: str) -> Iterable[Row]:
    """Yield minutes and accuracy of the rows that no other row beats in both on a clock, the fastest one first."""
    best = float("-inf")
    for row in sorted(
        (row for row in rows if row[clock]), key=lambda row: (row[clock], -row["top1_percent"])
    ):
        if row["top1_percent"] > best:
            best = row["top1_percent"]
            yield {"minutes": row[clock], "top1_percent": best}


def _most_accurate() -> list[Spec]:
    """Return the transforms that keep one point per recipe, its most accurate one, and number these by time."""
    return [
        {
            "window": [{"op": "row_number", "as": "place"}],
            "groupby": ["recipe"],
            "sort": [{"field": "top1_percent", "order": "descending"}],
        },
        {"filter": "datum.place == 1"},
        {"window": [{"op": "row_number", "as": "order"}], "sort": [{"field": "minutes"}]},
    ]
