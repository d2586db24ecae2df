"""Values formatted for readers."""

import csv
import html
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from resnet_recipes.base import text as formats
from resnet_recipes.base.text import escape_controls, escape_html, escape_markdown, format_csv_line
from resnet_recipes.report.page.charts import to_json
from resnet_recipes.report.page.html import (
    Figure,
    PageSection,
    Table,
    Tile,
    build_gallery,
    build_page,
)
from tests.shared.tables import parse_rows


@pytest.mark.parametrize(
    ("name", "number", "text"),
    parse_rows(
        """
format_clock | 0 | 0:00
format_clock | 41.4 | 0:41
format_clock | 59.6 | 1:00
format_clock | 1658 | 27:38
format_clock | 18250 | 5:04:10
format_long_time | 1.2 | 1 second
format_long_time | 3 | 3 seconds
format_long_time | 100 | 100 seconds
format_long_time | 170 | 3 minutes
format_long_time | 3000 | 50 minutes
format_long_time | 5400 | 90 minutes
format_long_time | 86400 | 24 hours
format_long_time | 345600 | 4 days
format_long_time | 6912000 | 11 weeks
format_long_time | 63072000 | 100 weeks
format_long_time | 63936000 | 2 years
format_long_time | 3.2e9 | 100 years
format_percent | 0 | 0%
format_percent | 0.004 | <1%
format_percent | 0.03 | 3%
format_percent | 1 | 100%
format_epochs | 0 | 0
format_epochs | 0.004 | 0.004
format_epochs | 0.1333 | 0.13
format_epochs | 22.5 | 22.5
format_epochs | 270 | 270
format_number | 27310.4 | 27,310
format_number | 143.2 | 143
format_number | 8.237 | 8.24
format_bytes | 0 | 0 bytes
format_bytes | 2040 | 2.04 kB
format_bytes | 999499 | 999 kB
format_bytes | 999500 | 1 MB
format_bytes | 85899345920 | 85.9 GB
format_bytes | 2345678000000000 | 2,346 TB
"""
    ),
)
def test_formats_round_numbers_and_add_units(name, number, text):
    assert getattr(formats, name)(float(number)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.2, "1 second"),
        (46, "50 seconds"),
        (420, "7 minutes"),
        (6600, "110 minutes"),
        (8467200, "14 weeks"),
        (16000000, "30 weeks"),
    ],
)
def test_guessed_times_are_multiples_of_ten_from_twenty(seconds, text):
    rounded = formats.round_long_time(seconds, is_guess=True)
    assert formats.format_long_time(rounded) == text


def test_format_count_chooses_singular_or_plural():
    texts = [
        formats.format_count(number, noun) for noun in ("epoch", "batch") for number in (0, 1, 2000)
    ]
    assert texts == ["0 epochs", "1 epoch", "2,000 epochs", "0 batches", "1 batch", "2,000 batches"]


def test_join_first_counts_the_names_after_the_fifth():
    assert formats.join_first("abc") == "a, b, c"
    assert formats.join_first("abcde") == "a, b, c, d, e"
    assert formats.join_first("abcdefgh") == "a, b, c, d, e and 3 more"


@pytest.mark.parametrize(
    "hostile", ["a\x1b[31mb", "a\rb", "a\nb", "a\x07b", "a\u202eb", "a\x9b2Jb", "a\udcffb"]
)
def test_escape_controls_replaces_terminal_codes(hostile):
    text = escape_controls(hostile)
    assert text.isprintable()
    assert text.startswith("a\\")
    assert text.endswith("b")


def test_escapes_keep_ordinary_names():
    name = "n02105855_Shetland sheepdog, \u72ac (No. 3)"
    assert {escape_controls(name), escape_html(name), escape_markdown(name)} == {name}
    assert format_csv_line([name, -1.5, None]) == f'"{name}",-1.5,\n'


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        *parse_rows(
            r"""
[a](http://b) | \[a\](http\://b)
![a][b] | !\[a\]\[b\]
<img src=x>&lt; | &lt;img src=x&gt;&amp;lt;
www.evil.example WWW.x | www\.evil.example WWW\.x
`a` *b* _c_ \[ | \`a\` \*b\* \_c\_ \\\[
"""
        ),
        ("a | b\n\n# c", r"a \| b # c"),
        ("a\x1b\u202eb", r"a\\x1b\\u202eb"),
    ],
)
def test_text_is_never_markup_in_markdown(text, escaped):
    assert escape_markdown(text) == escaped


def test_rendered_markdown_shows_the_text():
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    for text in ("[a](http://b)", "![a](b)", "<b>x</b>", "<http://x>", "a|b", "*a* _b_ `c`", "\\["):
        page = markdown.render(f"| x |\n|---|\n| {escape_markdown(text)} |\n")
        assert f"<td>{html.escape(text)}</td>" in page


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("\" onload='x'", "&quot; onload=&#x27;x&#x27;"),
        ("a\u202eb\udcff", r"a\u202eb\udcff"),
    ],
)
def test_text_is_never_markup_in_html(text, escaped):
    assert escape_html(text) == escaped


@pytest.mark.parametrize(
    "formula",
    ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", " =1", "\uff1d1", "\r\n=1"],
)
def test_text_is_never_a_formula_in_csv(formula):
    (cell,) = next(csv.reader([format_csv_line([formula])]))
    assert cell == f"'{escape_controls(formula)}" or cell.startswith("\\")
    (cell,) = next(csv.reader([format_csv_line([f"a;{formula}"])]))
    assert cell.startswith(("a;'", "a;\\"))


def test_csv_row_stays_on_one_line():
    assert format_csv_line(["a\nb", 'c"d', 0.5]) == 'a\\nb,"c""d",0.5\n'


def test_plot_text_cannot_end_its_script():
    text = to_json({"a": ["</script>\u202e\ud800", 1.5, None], "b": ({"c": True},)})
    assert json.loads(text) == {"a": ["</script>\\u202e\\ud800", 1.5, None], "b": [{"c": True}]}
    assert "<" not in text


class Attributes(HTMLParser):
    names: frozenset[str] = frozenset()

    def handle_starttag(self, tag, attrs):
        self.names |= {name for name, _ in attrs}


def test_page_writes_large_numbers_out():
    lines = [{"x": value} for value in (13190.4, 1_281_167, 94.25, 0.034, 3)]
    text = build_page("runs", [PageSection("runs", tables=[Table("runs", {"x": "x"}, lines)])])
    cells = re.findall(r'data-value="[^"]+">([^<]+)</td>', text)
    assert " ".join(cells) == "13,190 1,281,167 94.25 0.034 3"


def test_gallery_explains_copies_if_there_are_any():
    square, wide = (Tile(np.zeros((8, w, 3), np.uint8), "", "", "", 0.5) for w in (8, 16))
    assert "copy of an image" not in build_gallery("", "", [square])
    assert "copy of an image" in build_gallery("", "", [square, wide])


def test_page_text_is_never_markup():
    evil = '" onload=x <b>\u202e'
    section = PageSection(
        evil,
        text=[evil],
        legend=[evil],
        figures=[Figure(evil, evil, {})],
        tables=[Table(evil, {"recipe": "recipe", "x": evil}, [{"recipe": evil, "x": 1.0}])],
        notes=[evil],
    )
    tile = Tile(np.zeros((8, 8, 3), np.uint8), evil, evil, evil, 0.5)
    for text in (build_page(evil, [section]), build_gallery(evil, evil, [tile])):
        visible = re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL)
        assert visible.count("&lt;b&gt;") > 5
        assert "<b>" not in visible
        assert "\u202e" not in text
        (parser := Attributes()).feed(visible)
        assert {"class", "src"} & parser.names
        assert "onload" not in parser.names
