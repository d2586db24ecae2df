"""The page around the plots: one HTML file with everything in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resnet_recipes.report.page.vega import Spec, to_json
from resnet_recipes.report.text import in_html

_HERE = Path(__file__).parent

#: Characters beyond which a table cell is wrapped.
LONG = 24


@dataclass
class Figure:
    """A plot with its name and what it shows."""

    name: str  # of its PNG file and its element in the page
    caption: str
    spec: Spec


@dataclass
class Table:
    """Rows under headings; numbers are right-aligned and sort by value."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]


@dataclass
class Section:
    """A heading with sentences, figures and tables below it."""

    title: str
    text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()


def page(title: str, sections: Sequence[Section]) -> str:
    """Return the whole page; every name in it is escaped.

    About 1 MB, nearly all of it the plotting library.
    """
    import vl_convert

    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    library = vl_convert.javascript_bundle() if any(section.figures for section in sections) else ""
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{in_html(title)}</title><style>{style}</style></head><body>",
        f"<h1>{in_html(title)}</h1>",
        *map(_section, sections),
        f"<script>{library}</script><script>{script}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _section(section: Section) -> str:
    parts = [
        f"<section><h2>{in_html(section.title)}</h2>",
        *(f"<p>{in_html(text)}</p>" for text in section.text),
    ]
    parts += [_figure(figure) for figure in section.figures] + [
        _table(table) for table in section.tables
    ]
    if section.notes:
        parts.append(
            '<ul class="note">'
            + "".join(f"<li>{in_html(note)}</li>" for note in section.notes)
            + "</ul>"
        )
    return "\n".join([*parts, "</section>"])


def _figure(figure: Figure) -> str:
    name = in_html(figure.name)
    plot = f'<div class="plot" data-spec="{name}-spec"></div>'
    plot += f"<figcaption>{in_html(figure.caption)}</figcaption>"
    spec = f'<script type="application/json" id="{name}-spec">{to_json(figure.spec)}</script>'
    return f'<figure id="{name}">{plot}{spec}</figure>'


def _table(table: Table) -> str:
    numeric = [
        any(isinstance(row[i], float | int) for row in table.rows)
        for i in range(len(table.headings))
    ]
    kinds = [' class="number"' if is_number else "" for is_number in numeric]
    head = "".join(
        f"<th{kind}>{in_html(text)}</th>" for text, kind in zip(table.headings, kinds, strict=True)
    )
    rows = "\n".join("<tr>" + "".join(map(_cell, row, kinds)) + "</tr>" for row in table.rows)
    caption = f'<caption class="note">{in_html(table.caption)}</caption>'
    table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _cell(value: str | float | None, kind: str) -> str:
    if isinstance(value, str):
        kind = ' class="long"' if len(value) > LONG else kind
        return f"<td{kind}>{in_html(value)}</td>"
    if value is None:
        return f'<td{kind} data-value=""></td>'
    shown = f"{value:,.4g}" if value >= 1000 or value == int(value) else f"{value:.2f}"
    return f'<td{kind} data-value="{value}">{shown}</td>'
