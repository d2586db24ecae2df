"""The vocabulary of the report's plots: colours, shapes, axes and channels of Vega-Lite."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from resnet_recipes.base.text import printable

Spec = dict[str, Any]

#: Okabe and Ito's palette, whose colours also differ in lightness, with grey for its black: all can
#: be seen on white and on near-black.
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#7F7F7F",
    "#9467BD",
    "#A9674F",
    "#6B8E23",
)

#: What tells lines apart in black and white.
DASHES = (
    [1, 0],
    [6, 3],
    [2, 2],
    [8, 3, 2, 3],
    [12, 3],
    [4, 4],
    [2, 4],
    [8, 2, 2, 2, 2, 2],
    [10, 6],
    [3, 1],
)
#: What is behind: the text colour of the page, less of it.
INK = "currentColor"
FAINT = 0.75

#: Leaves out what the boxes of the page's legends hide.
VISIBLE: Spec = {"filter": "indexof(hidden, datum.name) < 0"}

#: Zooms with Ctrl and the wheel, or a pinch, so that a page still scrolls over a plot; a double
#: click shows all of it again.
ZOOM: Spec = {
    "name": "zoom",
    "select": {"type": "interval", "zoom": "wheel![event.ctrlKey]"},
    "bind": "scales",
}

#: A legend that shows lines as they are drawn.
LINES: Spec = {
    "symbolType": "stroke",
    "symbolSize": 900,
    "symbolStrokeWidth": 2,
    "columns": {"expr": "width < 600 ? 1 : 2"},
}

#: An axis of epochs or minutes has no ticks at fractions.
WHOLE: Spec = {"axis": {"tickMinStep": 1}}

_CONFIG: Spec = {
    "font": "Helvetica, Arial, sans-serif",
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": INK,
        "tickColor": INK,
        "gridColor": INK,
        "gridOpacity": 0.15,
    },
    "legend": {
        "labelFontSize": 12,
        "labelColor": INK,
        "labelLimit": 0,  # names are never cut off
        "orient": "bottom",
        "columns": {"expr": "width < 480 ? 2 : 4"},
    },
    "view": {"stroke": None},
}


def quantity(field: str, title: str, **scale: object) -> Spec:
    """Return a channel of numbers; `scale` has Vega-Lite's settings of their scale."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": scale or {"zero": False},
    }


def nominal(field: str, domain: Sequence[str], values: Sequence[object]) -> Spec:
    """Return a channel that tells names apart by colour, shape or dashes."""
    scale = {"domain": list(domain), "range": [values[i % len(values)] for i in range(len(domain))]}
    return {"field": field, "type": "nominal", "title": None, "scale": scale}


def dashes(field: str, domain: Sequence[str]) -> Spec:
    """Return a channel that tells lines apart in black and white, too."""
    return nominal(field, domain, DASHES) | {"legend": LINES}


def tooltip(fields: Iterable[str]) -> list[Spec]:
    """Return what hovering over a point shows."""
    numbers = {
        "top1_percent": ".2f",
        "low": ".2f",
        "high": ".2f",
        "minutes": ".4~g",
        "cost": ".2f",
        "epoch": ".3~f",
    }
    return [
        {
            "field": name,
            "title": name.removesuffix("_percent").replace("_", " "),
            **({"format": numbers[name]} if name in numbers else {}),
        }
        for name in fields
    ]


def plot(description: str, body: Spec, height: int = 300) -> Spec:
    """Return a whole plot, as wide as its place on the page; `height` in pixels.

    `description` is its name for a screen reader.
    """
    return {
        "description": description,
        "width": "container",
        "height": height,
        "padding": {"left": 5, "right": 20, "top": 5, "bottom": 5},
        "config": _CONFIG,
        "autosize": {"type": "fit-x", "contains": "padding"},
        **body,
        "params": [{"name": "hidden", "value": []}, *body.get("params", ())],
    }


def to_json(spec: Spec) -> str:
    """Return a plot as JSON.

    It shows no invisible characters and cannot end a script element around it.
    """
    text = json.dumps(_shown(spec))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return printable(value) if isinstance(value, str) else value
