"""The plots of the report, as Vega-Lite specifications.

The browser renders them. PNG files need an extra.
"""

import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.extras import suggest_install
from resnet_recipes.base.text import escape_controls

ChartRow = dict[str, Any]
Spec = dict[str, Any]

#: The specifications, with "$name" as placeholders.
_PLOTS: Spec = json.loads(Path(__file__).with_name("plots.json").read_text(encoding="utf-8"))

#: The palette of Okabe and Ito, with gray instead of black: all colors are visible on white and on
#: near-black. Dashes distinguish the lines in black and white.
COLORS: Sequence[str] = _PLOTS["frame"]["config"]["range"]["category"]
DASHES: Sequence[Sequence[int]] = _PLOTS["curve"]["encoding"]["strokeDash"]["scale"]["range"]

_SIZE = (340, 300)  # width and height of a plot, in pixels
_LETTER = 6  # width of a letter, in pixels
_OFFSETS = (11, -11, 0, 22, -22)  # pixels by which a name may be below its line

#: Fields in the tooltip of a point.
TOOLTIP_FIELDS = (
    "name",
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
    "command",
)


def plot_accuracy(
    rows: Sequence[ChartRow], x: str, title: str, published: Sequence[ChartRow] = ()
) -> Spec:
    """Return top-1 against `x`, on a logarithmic axis: a line per series, and the Pareto front.

    Rows have series, top1_percent, `x`, the fields of tooltips, and optionally low and high. The
    Pareto front of each published series is behind them, as open points.
    """
    drawn, behind = ([row for row in part if row[x]] for part in (rows, published))
    lines = list(_group_by_series(drawn).values())
    fronts = [find_pareto(line, x, 1.0) for line in _group_by_series(behind).values()]
    main = lines or fronts
    front = find_pareto((row for line in main for row in line), x)
    names = label_lines([*lines, *fronts], x)
    colored = _fill("colored", series=[line[0]["series"] for line in main])
    return _make_plot(
        "accuracy",
        description=f"Top-1 accuracy against {title}",
        x=x,
        title=title,
        front=front,
        behind=_draw_lines(
            fronts, names[len(lines) :], _PLOTS["gray"] if lines else colored, False
        ),
        own=_draw_lines(lines, names[: len(lines)], colored, True),
    )


def label_lines(lines: Sequence[Sequence[ChartRow]], x: str) -> list[ChartRow]:
    """Return the end of each line, with dy, the offset of its name in pixels.

    A name is to the right of the line, where it overlaps the fewest points and other names.
    """
    import numpy as np

    rows = [row for line in lines for row in line]
    if not rows:
        return []
    points = np.array([(np.log(row[x]), -row["top1_percent"]) for row in rows])
    points *= _SIZE / np.maximum(np.ptp(points, 0), 1e-9)
    occupied, labels = points, []
    for end in np.cumsum([*map(len, lines)]) - 1:
        letters = np.arange(2, 2 + len(rows[end]["series"]))[:, None] * (_LETTER, 0) + points[end]
        spots = {dy: letters + np.array((0, dy)) for dy in _OFFSETS}
        hits = {dy: abs(spot[:, None] - occupied) < 2 * _LETTER for dy, spot in spots.items()}
        dy = min(_OFFSETS, key=lambda dy: hits[dy].all(2).sum())
        labels.append(rows[end] | {"dy": dy})
        occupied = np.concatenate([occupied, spots[dy]])
    return labels


def _draw_lines(
    lines: Sequence[Sequence[ChartRow]], names: Sequence[ChartRow], look: Spec, filled: bool
) -> Spec:
    rows = [row for line in lines for row in line]
    fields = [
        key for key in TOOLTIP_FIELDS if any(row.get(key) not in (None, "", 0) for row in rows)
    ]
    return _fill(
        "lines",
        rows=rows,
        bars=[row for row in rows if "low" in row],
        names=names,
        look=look,
        filled=filled,
        tooltip=_make_tooltip(fields),
    )


def _group_by_series(rows: Iterable[ChartRow]) -> dict[str, list[ChartRow]]:
    series: dict[str, list[ChartRow]] = {}
    for row in rows:
        series.setdefault(row["series"], []).append(row)
    return series


def plot_curve(points: Sequence[ChartRow], y: str, title: str) -> Spec:
    """Return one measured quantity over the epochs of several runs, one line per run.

    Rows have name, epoch and `y`, and perhaps low and high, the ends of its interval.
    """
    keys = ("name", "epoch", y, "low", "high")
    values = [
        {key: row[key] for key in keys if key in row} for row in points if row.get(y) is not None
    ]
    return _make_plot(
        "curve",
        description=f"{title[0].upper()}{title[1:]} over the epochs",
        values=values,
        has_points=len(values) < 200,
        names=sorted({row["name"] for row in points}),
        y=y,
        title=title,
        from_zero=y in ("lr", "data_wait_share"),
        tooltip=_make_tooltip(key for key in keys if any(key in row for row in values)),
    )


def plot_phases(rows: Sequence[ChartRow]) -> Spec:
    """Return the minutes of each run by phase; rows have name, phase, rank, minutes."""
    return _make_plot(
        "phases",
        rows=rows,
        phases=list(dict.fromkeys(row["phase"] for row in rows)),
        height=max(60, 26 * len({row["name"] for row in rows})),
        tooltip=_make_tooltip(("name", "phase", "minutes")),
    )


def plot_classes(accuracy: Sequence[dict], cells: Iterable[dict]) -> Spec:
    """Return the plot of the classes of `accuracy`, whose rows have class, images and top-1.

    `cells` of the confusion matrix have class, predicted class and images. Cells of other classes
    are omitted.
    """
    images = {row["class"]: row["images"] for row in accuracy}
    off_diagonal = [
        cell | {"percent": 100 * cell["images"] / images[cell["class"]]}
        for cell in cells
        if {cell["class"], cell["predicted"]} <= images.keys()
    ]
    return _fill("by_class", accuracy=accuracy, cells=off_diagonal, classes=list(images))


def find_pareto(rows: Iterable[ChartRow], x: str, ratio: float = 1.1) -> list[ChartRow]:
    """Return the Pareto front of `x` and top-1, by ascending `x`.

    Every more accurate row has more than `ratio` times the `x`, or with the same PFLOPs at least
    twice the `x`: less may be noise of the time.
    """
    front = list[ChartRow]()
    least = inf
    least_by_pflops = defaultdict[float, float](lambda: inf)
    for row in sorted(rows, key=lambda row: (-row["top1_percent"], row[x])):
        pflops = row.get("pflops")
        if ratio * row[x] < least and (not pflops or 2 * row[x] <= least_by_pflops[pflops]):
            front.append(row)
        least = min(least, row[x])
        if pflops:
            least_by_pflops[pflops] = min(least_by_pflops[pflops], row[x])
    return front[::-1]


def to_json(spec: Spec) -> str:
    """Return a plot as JSON, without invisible characters, safe inside a script element."""
    text = json.dumps(_map_texts(spec, escape_controls))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _make_tooltip(fields: Iterable[str]) -> list[Spec]:
    return [
        {"field": name, "title": name.removesuffix("_percent").replace("_", " ")}
        | ({"format": _PLOTS["formats"][name]} if name in _PLOTS["formats"] else {})
        for name in fields
    ]


def _make_plot(name: str, **values: object) -> Spec:
    return _PLOTS["frame"] | _fill(name, **values)


def _fill(name: str, **values: object) -> Spec:
    def replace(text: str) -> object:
        return values[text[1:]] if text.startswith("$") else text

    return _map_texts(_PLOTS[name], replace)


def _map_texts(value: Any, change: Callable[[str], object]) -> Any:
    """Return a value with `change` applied to every text except keys."""
    if isinstance(value, dict):
        return {key: _map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_texts(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def import_plotting() -> ModuleType:
    """Return the plotting library of --png. Raises NotReadyError if it is missing."""
    try:
        import vl_convert
    except ImportError:
        clause = "needs the plotting library, which is not installed"
        raise NotReadyError.of("--png", None, clause, suggest_install("report")) from None
    return vl_convert


def draw_png(spec: Spec) -> bytes:
    """Draw a plot as a PNG."""
    return import_plotting().vegalite_to_png(to_json(spec), scale=2)


def write_pictures(folder: Path, plots: Mapping[str, Spec]) -> None:
    """Write named plots as PNGs with a palette, at a tenth of the size."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for name, spec in plots.items():
        drawn = io.BytesIO(draw_png(spec | {"width": 760}))
        picture = Image.open(drawn).convert("RGB").quantize(256)
        with atomic.replace_file(folder / f"{name}.png") as file:
            picture.save(file, "PNG", optimize=True)
