"""The HTML page around the plots: one self-contained file."""

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from resnet_recipes.base.text import escape_html
from resnet_recipes.report.page import GALLERY_HEAD, REPORT_HEAD
from resnet_recipes.report.page.charts import COLORS, DASHES, Spec, to_json

if TYPE_CHECKING:
    import numpy as np

_FOLDER = Path(__file__).parent

#: Height and width of a thumbnail, in pixels.
_THUMBNAIL_SIZE = 160

#: Characters of a table cell before it is wrapped.
MAX_CELL_CHARACTERS = 24


@dataclass
class Figure:
    """A plot with its name and caption, which may be empty."""

    name: str  # name of the PNG file and the HTML element
    caption: str
    spec: Spec
    has_own_legend: bool = False  # whether its names are missing in the page's legend


@dataclass
class Table:
    """Rows under headings; numbers are right-aligned and sort by value."""

    caption: str
    columns: Mapping[str, str]  # headings by cell key
    rows: Sequence[Mapping[str, Any]]  # text, numbers or None
    formats: Mapping[str, Callable[[float], str]] = field(default_factory=dict)  # by cell key


@dataclass
class PageSection:
    """A heading with sentences, figures and tables below it."""

    title: str
    text: Sequence[str] = ()
    # names of the runs in its plots, in the order of their colors, with checkboxes to hide them
    legend: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()


def build_page(title: str, sections: Sequence[PageSection]) -> str:
    """Return the page: 1 MB, mostly the plotting library. Every name is escaped."""
    scripts = map(_read_file, ("vega.min.js", "page.js"))
    return build_document(title, map(_format_section, sections), scripts)


class Tile(NamedTuple):
    """An image as the network gets it, with its prediction."""

    pixels: "np.ndarray"  # uint8 [H, W, 3], perhaps with a heat map to the right
    name: str
    label: str  # "" if unknown
    prediction: str
    probability: float


def build_gallery(title: str, text: str, tiles: Sequence[Tile]) -> str:
    """Return the page, about 10 kB for each image; every name is escaped."""
    if any(tile.pixels.shape[1] > tile.pixels.shape[0] for tile in tiles):
        text += ". In the copy of an image, pixels that do not support the prediction are dark."
    figures = [
        f'<figure><img src="data:image/jpeg;base64,{_encode_jpeg(tile.pixels)}" alt="">'
        f"<figcaption>{100 * tile.probability:.1f}% {escape_html(tile.prediction)}<br>"
        f"{tile.label and f'label: {escape_html(tile.label)}<br>'}"
        f"<small>{escape_html(tile.name)}</small></figcaption></figure>"
        for tile in tiles
    ]
    return build_document(
        title, [f"<p>{escape_html(text)}</p>", '<div class="gallery">', *figures, "</div>"]
    )


def build_document(title: str, body: Iterable[str], scripts: Iterable[str] = ()) -> str:
    """Return a self-contained HTML file from elements whose text is escaped."""
    parts = [
        REPORT_HEAD if scripts else GALLERY_HEAD,
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape_html(title)}</title><style>{_read_file('page.css')}</style>"
        "</head><body><main>",
        f"<h1>{escape_html(title)}</h1>",
        *body,
        f"</main>{''.join(f'<script>{script}</script>' for script in scripts)}</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _read_file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _format_section(section: PageSection) -> str:
    notes = "".join(f"<li>{escape_html(note)}</li>" for note in section.notes)
    return "\n".join(
        [
            f"<section><h2>{escape_html(section.title)}</h2>",
            *(f"<p>{escape_html(text)}</p>" for text in section.text),
            *([_format_legend(section.legend)] if section.legend else []),
            '<div class="figures">',
            *map(_format_figure, section.figures),
            "</div>",
            *map(_format_table, section.tables),
            f'<ul class="note">{notes}</ul>' if notes else "",
            "</section>",
        ]
    )


def _format_legend(names: Sequence[str]) -> str:
    boxes = "\n".join(
        f'<label><input type="checkbox" checked value="{escape_html(name)}">'
        f"{_draw_swatch(index)}{escape_html(name)}</label>"
        for index, name in enumerate(names)
    )
    return f'<fieldset class="legend"><legend>Runs</legend>{boxes}</fieldset>'


def _draw_swatch(index: int) -> str:
    color = COLORS[index % len(COLORS)]
    dashes = " ".join(map(str, DASHES[index % len(DASHES)]))
    path = f'<path d="M0,5H40" stroke="{color}" stroke-width="2" stroke-dasharray="{dashes}"/>'
    return f'<svg viewBox="0 0 40 10" aria-hidden="true">{path}</svg>'


def _format_figure(figure: Figure) -> str:
    name = escape_html(figure.name)
    legend = "own" if figure.has_own_legend else "page"
    plot = f'<div class="plot" data-spec="{name}-spec" data-legend="{legend}"></div>'
    text = escape_html(figure.caption)
    caption = f"<figcaption>{text}</figcaption>" if text else ""
    spec = f'<script type="application/json" id="{name}-spec">{to_json(figure.spec)}</script>'
    return f'<figure id="{name}">{plot}{caption}{spec}</figure>'


def _format_table(table: Table) -> str:
    numeric = {
        key for row in table.rows for key, value in row.items() if isinstance(value, float | int)
    }
    kinds = {key: ' class="number"' if key in numeric else "" for key in table.columns}
    head = "".join(
        f'<th{kinds[key]} aria-sort="none"><button type="button">{escape_html(text)}</button></th>'
        for key, text in table.columns.items()
    )
    rows = ""
    for row in table.rows:
        cells = (
            _format_cell(row[key], kinds[key], table.formats.get(key, _format_number))
            for key in kinds
        )
        rows += f"<tr>{''.join(cells)}</tr>\n"
    name = escape_html(table.caption)
    return (
        f'<p class="note">{name}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _format_number(value: float) -> str:
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _format_cell(value: str | float | None, kind: str, format_value: Callable[[float], str]) -> str:
    if isinstance(value, str):
        kind = ' class="long"' if len(value) > MAX_CELL_CHARACTERS else kind
        return f"<td{kind}>{escape_html(value)}</td>"
    if value is None:
        return f'<td{kind} data-value=""></td>'
    return f'<td{kind} data-value="{value}">{escape_html(format_value(value))}</td>'


def _encode_jpeg(pixels: "np.ndarray") -> str:
    from PIL import Image

    picture = Image.fromarray(pixels)
    file = io.BytesIO()
    picture.thumbnail((2 * _THUMBNAIL_SIZE, _THUMBNAIL_SIZE))
    picture.save(file, "JPEG", quality=90)
    return base64.b64encode(file.getvalue()).decode()
