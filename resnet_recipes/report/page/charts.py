"""The plots of the report as Vega-Lite specifications, drawn by the browser or into PNG files."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from resnet_recipes.report.page.names import TEXT, placed
from resnet_recipes.report.page.vega import (
    COLOURS,
    FAINT,
    INK,
    LINES,
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

#: The line of the points that no other beats, and the bar over seeds.
FRONT: Spec = {
    "type": "line",
    "interpolate": "step-after",
    "color": INK,
    "strokeWidth": 1,
    "strokeDash": [5, 3],
}
#: What hovering over a point shows of it.
SHOWN = (
    "name",
    "label",
    "top1_percent",
    "low",
    "high",
    "seeds",
    "epochs",
    "minutes",
    "cost",
    "pflops",
    "hardware",
    "source",
    "note",
    "command",
)
BAR: Spec = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}


def accuracy(rows: Sequence[Row], x: str, title: str, published: Sequence[Row] = ()) -> Spec:
    """Return top-1 against `x`, on a logarithmic axis: a named line for each series, and the front.

    Rows have series, top1_percent, `x`, perhaps low and high, and what hovering shows. Published
    results are open points behind them, those that nothing of their series beats.
    """
    own, behind = ([row for row in part if row[x]] for part in (rows, published))
    lines = list(_by_series(own).values())
    fronts = [list(pareto(line, x)) for line in _by_series(behind).values()]
    main = lines or fronts
    encoding = {
        "x": quantity(x, title, type="log", nice=False, padding=24)
        | {"axis": {"format": ".3~r", "tickCount": 8}},
        "y": quantity("top1_percent", "top-1 accuracy (%)", zero=False, nice=True)
        | {"axis": {"format": ".4~r"}},
    }
    front = list(pareto((row for line in main for row in line), x))
    series = [line[0]["series"] for line in main]
    colour = {"color": nominal("series", series, COLOURS) | {"legend": None}}
    grey = {"color": {"value": INK}, "opacity": {"value": 0.5}}
    names = placed([*lines, *fronts], x, front)
    layers = [_layer(front, FRONT, encoding) | {"params": [ZOOM]}]
    for part, called in ((fronts, names[len(lines) :]), (lines, names[: len(lines)])):
        layers += _drawn(
            [row for line in part for row in line],
            called,
            encoding | (colour if part is main else grey),
            {"type": "point", "size": 55, "filled": part is lines, "opacity": 1},
        )
    room = {"left": 5, "right": 50, "top": 5, "bottom": 5}  # for names of the points at the right
    return plot(f"Top-1 accuracy against {title}", {"layer": layers, "padding": room})


def _drawn(rows: Sequence[Row], names: Sequence[Row], look: Spec, point: Spec) -> list[Spec]:
    """Return lines, bars over seeds, points and names."""
    known = [key for key in SHOWN if any(row.get(key) not in (None, "", 0) for row in rows)]
    series = {"field": "series"}
    return [
        _layer(rows, {"type": "line", "opacity": FAINT}, look | {"detail": series}),
        _layer([row for row in rows if "low" in row], "rule", look | BAR),
        _layer(rows, point, look | {"tooltip": tooltip(known)}),
        _layer(names, TEXT, look | {"text": series}),
    ]


def _by_series(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["series"], []).append(row)
    return found


def _layer(rows: Sequence[Row], mark: Spec | str, encoding: Spec) -> Spec:
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": encoding}


def curve(points: Sequence[Row], y: str, title: str) -> Spec:
    """Return one measured quantity over the epochs of several runs, one line per run.

    Rows have name, epoch and `y`.
    """
    names = sorted({row["name"] for row in points})
    values = [
        {key: row[key] for key in ("name", "epoch", y)} for row in points if row.get(y) is not None
    ]
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
    """Return where the minutes of each run went; rows have name, phase, rank, minutes."""
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
