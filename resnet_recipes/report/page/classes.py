"""A plot of an evaluation by class: the confusion matrix beside the accuracy."""

from collections.abc import Collection, Iterable, Sequence

from resnet_recipes.report.page.vega import Spec

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
