"""Print results as lines, tables, JSON or CSV on stdout, and progress on stderr."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import Hint, NotReadyError
from resnet_recipes.base.paths import parse_path
from resnet_recipes.base.text import Snippet, escape_controls, format_csv_line, wrap_text
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.output_files import is_stream

_NUMERIC_CELL = re.compile(r"[-?]|[<$~]{0,2}[\d.,:/?]+(%| \w+)?")


def say(*texts: str) -> None:
    """Show texts to the user while a command works, with control characters escaped.

    Their lines are wrapped for the terminal, except snippets.
    """
    for text in texts:
        lines = [escape_controls(text)]
        if not isinstance(text, Snippet):
            lines = [part for line in text.split("\n") for part in _wrap_line(line)]
        print("\n".join(lines), file=sys.stderr, flush=True)


def _wrap_line(line: str) -> list[str]:
    """Return a line, wrapped for the terminal below its own indentation."""
    text = line.lstrip(" ")
    indent = " " * (len(line) - len(text))
    return wrap_text(text, get_line_width(), indent, f"{indent}    ")


def show(
    arguments: Arguments,
    values: object,
    lines: Iterable[str],
    rows: Sequence[Mapping[str, object]] = (),
) -> None:
    """Print a result as lines, or as JSON with --json; write its rows if --csv is set."""
    if name := arguments.flags.get("--csv"):
        cells = [rows[0], *(row.values() for row in rows)] if rows else []
        with open_output("--csv", name) as file:
            file.write("".join(map(format_csv_line, cells)).encode())
    print(json.dumps(values, indent=2) if "--json" in arguments else "\n".join(lines))


@contextmanager
def open_output(flag: str, name: str) -> Iterator[BinaryIO]:
    """Open the output file of a flag; it appears once it is complete, and then is reported.

    Raises NotReadyError if the file cannot be written.
    """
    try:
        path = parse_path(flag, name)
        if is_stream(path):
            with path.open("wb") as file:
                yield file
            return
        path = path.resolve()  # root could replace a link to a device
        with suppress(OSError):
            atomic.delete_parts(path.parent, path.name)  # parts left by a killed command
        with atomic.replace_file(path) as file:
            yield file
        say(f"saved {name}")
    except OSError as error:
        clause = f"cannot be written: {error.strerror}"
        raise NotReadyError.of(flag, name, clause, Hint("use another file or folder")) from None


def get_width() -> int:
    """Return the columns of the terminal; 80 in a pipe."""
    return shutil.get_terminal_size().columns


def get_line_width() -> int:
    """Return the columns of the terminal; in a pipe, lines are not wrapped."""
    return shutil.get_terminal_size((0, 0)).columns or sys.maxsize


def get_page_width() -> int:
    """Return the columns for a page of text: those of the terminal, at most 100."""
    return min(get_width(), 100)


def format_table(
    rows: Sequence[Mapping[str, str]], drop: Sequence[str] = (), width: int = 0
) -> list[str]:
    """Return rows below their headings, which come from the first row; numbers are right-aligned.

    Columns in `drop` are omitted one by one until the rest fits into `width` columns, by default
    those of the terminal.
    """
    columns = {head: [head, *(row[head] for row in rows)] for head in rows[0]}
    widths = {head: max(map(len, cells)) for head, cells in columns.items()}
    for head in drop:
        if sum(widths.values()) + 2 * (len(widths) - 1) > (width or get_width()):
            widths.pop(head, None)
    aligned = [_align(columns[head], widths[head]) for head in widths]
    return ["  ".join(cells).rstrip() for cells in zip(*aligned, strict=True)]


def _align(cells: Sequence[str], width: int) -> list[str]:
    alignment = ">" if all(map(_NUMERIC_CELL.fullmatch, cells[1:])) else "<"
    return [f"{cell:{alignment}{width}}" for cell in cells]


def format_or_dash(value: float | None, write: Callable[[float], str]) -> str:
    """Return a cell with a value, or a dash if there is no value."""
    return "-" if value is None else write(value)
