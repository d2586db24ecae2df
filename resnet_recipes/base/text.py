"""Format values for people, and escape untrusted text for each medium."""

import csv
import html
import io
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence

#: Function that shows text to the user.
Say = Callable[[str], None]

#: Function that shows progress: the number of finished parts, and of all parts.
Progress = Callable[[int, int], None]


def do_nothing(*_: object) -> None:
    """Do nothing: the default of functions such as `Say` and `Progress`."""


_MARKDOWN = re.compile(r"[\\`*\[\]|]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE)

#: Characters that start a formula in a spreadsheet cell, also after a semicolon.
_FORMULA = re.compile(r"(?:^|(?<=;))(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")


def escape_controls(text: object) -> str:
    """Return text for a terminal, with control characters replaced by their escape codes."""
    text = text if isinstance(text, str) else str(text)
    return (
        text
        if text.isprintable()
        else "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
            for char in text
        )
    )


class Snippet(str):
    """Text to copy, such as a command: lines break only between the items of a list."""


def get_first_line(error: BaseException) -> str:
    """Return at most 200 characters of an error's first line, or its type if it has no text."""
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__


def format_epochs(count: float) -> str:
    """Return a number of epochs: 0.004, 0.13, 22.5 or 36; two decimals, or one digit below 0.01."""
    return f"{round(count, 2):.12g}" if count >= 0.01 else f"{count:.1g}"


def wrap_text(
    text: object, width: int, first: str = "", rest: str = "", glue: str = ""
) -> list[str]:
    """Return text for a terminal, in lines of at most `width` columns, prefixed `first` and `rest`.

    `glue` matches spaces where lines must not break. Long words, which may be paths, are not cut.
    """
    kind = Snippet if isinstance(text, Snippet) else str
    glue = "(?<!,) " if kind is Snippet else glue
    lines = textwrap.wrap(
        re.sub(glue, "\0", escape_controls(text)) if glue else escape_controls(text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [kind(line.replace("\0", " ").rstrip()) for line in lines] or [first.rstrip()]


def format_facts(
    rows: Iterable[tuple[str, object]], width: int, column: int, indent: int = 0
) -> list[str]:
    """Return a list of facts for a terminal: each label, and its text wrapped at a column."""
    lines = []
    for label, text in rows:
        first = f"{'':{indent}}{label}".ljust(column)
        lines += wrap_text(text, width, first, " " * column)
    return lines


def escape_html(text: object) -> str:
    """Escape text for HTML elements and quoted attributes.

    Control and invisible characters become visible codes, such as \\u200b.
    """
    return html.escape(escape_controls(text))


def escape_markdown(text: object) -> str:
    """Escape text for one line of Markdown or a table cell."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", escape_controls(" ".join(str(text).split())))
    return html.escape(escaped, quote=False)


def format_csv_line(values: Iterable[object]) -> str:
    """Return one line of CSV.

    An apostrophe precedes text that a spreadsheet could run as a formula.
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(
        _FORMULA.sub("'", escape_controls(value)) if isinstance(value, str) else value
        for value in values
    )
    return line.getvalue()


def format_clock(seconds: float) -> str:
    """Format a duration as 0:41, 27:38 or 5:04:10."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_minutes(minutes: float) -> str:
    """Format minutes like a clock."""
    return format_clock(60 * minutes)


def format_count(number: float, noun: str, number_format: str = ",") -> str:
    """Format a number with its noun, as "1 epoch" or "1,024 batches"."""
    plural = "s" if noun[-2:] not in ("ch", "ss") or noun == "epoch" else "es"
    return f"{number:{number_format}} {noun}{'' if number == 1 else plural}"


def join_first(names: Sequence[str]) -> str:
    """Return the first few names, and the number of the others."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def format_percent(fraction: float) -> str:
    """Format a fraction as a percentage without decimals; small values as "<1%", not "0%"."""
    return "<1%" if 0 < fraction < 0.005 else f"{100 * fraction:.0f}%"


def format_number(number: float) -> str:
    """Format a number to three significant digits, or to an integer from 100 on.

    As "0.0123", "5", "12.3" or "12,345".
    """
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def format_bytes(count: float) -> str:
    """Format a number of bytes with a suitable unit, as "97 bytes", "2.04 kB" or "310 MB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{format_number(count)} {unit}"
        count /= 1000
    return f"{format_number(count)} TB"


#: Names of units of time by seconds, the largest first.
_UNITS = {31557600: "year", 604800: "week", 86400: "day", 3600: "hour", 60: "minute", 1: "second"}


def round_long_time(seconds: float, is_guess: bool = False) -> int:
    """Round seconds to a unit: the largest that fits at least twice, or seconds.

    From 100 units on, or 20 for a guess, the result is a multiple of 10 units.
    """
    unit = next((unit for unit in _UNITS if seconds >= 2 * unit), 1)
    number = max(1, round(seconds / unit))
    return unit * (round(number, -1) if number >= (20 if is_guess else 100) else number)


def format_long_time(seconds: float) -> str:
    """Format a duration roughly, as "11 weeks" or "100 seconds"."""
    seconds = round_long_time(seconds)
    unit = next((unit for unit in _UNITS if seconds >= 2 * unit), 1)
    return format_count(seconds // unit, _UNITS[unit])
