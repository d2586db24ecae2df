"""A table of images and labels: a CSV file, or the metadata file of a Hugging Face dataset."""

import codecs
import csv
import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BufferedReader
from itertools import chain
from pathlib import Path
from stat import S_ISDIR
from typing import NamedTuple

from resnet_recipes.base.errors import Hint, NotReadyError, Problem
from resnet_recipes.base.reading import open_regular, parse_json, read_bytes
from resnet_recipes.base.text import format_count, join_first
from resnet_recipes.data.files.listing import READ_THREADS, Listing
from resnet_recipes.data.root import (
    SYNONYMS,
    WINDOWS_HINT,
    find_split_names,
    make_error,
    make_problem,
)

#: Files with labels next to the images, as in Hugging Face `imagefolder`.
METADATA = ("metadata.csv", "metadata.jsonl")

#: Names of the columns; the first that is present is used. A path is relative to the table.
FILE = ("file_name", "path", "file", "image")
LABEL = ("label", "class")
SPLIT = ("split",)

_HEAD_HINT = Hint("name the columns in the first line: path,label")
_ROW_HINT = Hint("each row names another file, and its label")
_FORMAT_HINT = Hint(
    "commas, semicolons or tabs separate columns; a .jsonl has an object in each line"
)
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # marks that spreadsheets write
_SPLITS = frozenset(chain(*SYNONYMS.values()))
_MAX_BYTES = 1 << 30
_MAX_LINE_BYTES = 1 << 20
_MISSING, _FOLDER = -1, -2  # in place of a file size
_TASK_SIZE = 1000  # file sizes per task; each task uses 1.5 kB


#: Column names; and the line number and cells of each row.
_Cells = tuple[list[str], list[tuple[int, list[str]]]]


class TableRow(NamedTuple):
    """One image."""

    line: int
    name: str
    label: str
    # name in lower case; without a split column, the first folder of the path if it names a split
    split: str

    @property
    def is_complete(self) -> bool:
        """Whether the row has a file and a label."""
        is_file = self.name and "\0" not in self.name and not self.name.endswith("/")
        return bool(is_file and self.label)


def read_rows(table: Path, only: str = "", is_local: bool = True) -> list[TableRow]:
    """Read a table; `only` is its only split, if given.

    Raises NotReadyError if it is not valid, and OSError if it cannot be read. The files must exist,
    unless the table is a copy of a remote one (not `is_local`).
    """
    columns, cells = _read_cells(table)
    if not columns:
        raise make_error(table, "is empty", _HEAD_HINT)
    file, label, split = (_find_column(columns, synonyms) for synonyms in (FILE, LABEL, SPLIT))
    required = {"paths": (FILE, file), "labels": (LABEL, label)}
    if lacking := [
        f"{what} ({', '.join(synonyms)})" for what, (synonyms, at) in required.items() if at is None
    ]:
        detail = f"; its columns are {', '.join(columns[:8])}"
        raise make_error(table, f"has no column of {' or '.join(lacking)}{detail}", _HEAD_HINT)
    rows = [
        TableRow(line, _get_cell(row, file), _get_cell(row, label), _get_cell(row, split).lower())
        for line, row in cells
    ]
    if not rows:
        raise make_error(table, "has no rows", _ROW_HINT)
    problems = list[Problem]()
    if wrong := [f"line {row.line}" for row in rows if not row.is_complete]:
        clause = f"has {format_count(len(wrong), 'row')} without a file or a label"
        problems.append(make_problem(table, f"{clause}: {join_first(wrong)}", _ROW_HINT))
        rows = [row for row in rows if row.is_complete]
    if split is None and not only:
        words = find_split_names({row.name.partition("/")[0] for row in rows})
        rows = [row._replace(split=words.get(row.name.partition("/")[0], "")) for row in rows]
    synonyms = next((names for names in SYNONYMS.values() if only in names), _SPLITS)
    splits = {row.split for row in rows}
    if splits != {""} and (odd := splits.difference(synonyms)):
        meant = "the split in its file name" if only else "training or validation"
        clause = f"has rows whose split is not {meant}: {join_first(sorted(odd)) or 'none'}"
        fix = Hint(f"use {', '.join(sorted(synonyms))}")
        both = Hint("data=TABLE reads both splits") if only else ""
        problems.append(make_problem(table, clause, (fix, both)))
    if problems and is_local:
        make_listing(table, rows, problems)
    NotReadyError.raise_if_any(problems)
    return rows


def has_labels(table: Path) -> bool:
    """Return whether a table has a label column; other tables have captions or boxes.

    For a CSV file, reads the first line; reads the rest only if that has no column names. Raises
    NotReadyError if the table is not valid, OSError if it cannot be read.
    """
    columns: list[str] = []
    if table.suffix.lower() != ".jsonl":
        with suppress(OSError, ValueError, csv.Error), BufferedReader(open_regular(table)) as file:
            line = file.readline(_MAX_LINE_BYTES).decode("utf-8-sig")
            columns, _ = _parse_csv(io.StringIO(line, newline=""))
    return _find_column(columns or _read_cells(table)[0], LABEL) is not None


def make_listing(table: Path, rows: Sequence[TableRow], wrong: Sequence[Problem] = ()) -> Listing:
    """Return the listing of these rows.

    Raises NotReadyError with `wrong` rows, and if files are missing or listed twice.
    """
    folder = os.path.realpath(table.parent)
    problems = [*wrong]
    names = [
        os.path.relpath(row.name, folder) if os.path.isabs(row.name) else os.path.normpath(row.name)
        for row in rows
    ]
    some = [names[first : first + _TASK_SIZE] for first in range(0, len(names), _TASK_SIZE)]
    with ThreadPoolExecutor(READ_THREADS) as pool:
        sizes = list(chain(*pool.map(lambda part: _read_sizes(folder, part), some)))
    first = {name: row for row, name in zip(reversed(rows), reversed(names), strict=True)}
    files = [*zip(rows, names, sizes, strict=True)]
    has_backslash = any("\\" in row.name for row in rows)
    near = WINDOWS_HINT if has_backslash else Hint(f"paths are relative to {folder}")
    for clause, hint, bad in (
        ("lists missing files", near, [row for row, _, size in files if size == _MISSING]),
        ("lists folders", _ROW_HINT, [row for row, _, size in files if size == _FOLDER]),
        (
            "names images twice",
            _ROW_HINT,
            [row for row, name, _ in files if row is not first[name]],
        ),
    ):
        if bad:
            listed = join_first([f"{row.name} in line {row.line}" for row in bad])
            clause = f"{clause}, {len(bad):,} of {len(rows):,}: {listed}"
            problems.append(make_problem(table, clause, hint))
    NotReadyError.raise_if_any(problems)
    return Listing.build(folder, zip((row.label for row in rows), names, sizes, strict=True))


def _read_cells(table: Path) -> _Cells:
    """Return the column names, and the line number and cells of each row."""
    content = read_bytes(table, _MAX_BYTES)
    try:
        code = "utf-16" if content[:2] in _UTF16_MARKS else "utf-8-sig"
        text = io.StringIO(content.decode(code), newline="")
        return _parse_objects(text) if table.suffix.lower() == ".jsonl" else _parse_csv(text)
    except UnicodeDecodeError:
        raise make_error(table, "is not text in UTF-8", Hint("save it as UTF-8")) from None
    except (ValueError, csv.Error) as error:
        raise make_error(table, f"cannot be read as a table: {error}", _FORMAT_HINT) from None


def _parse_csv(text: io.StringIO) -> _Cells:
    """Read comma-, semicolon- or tab-separated values.

    Two columns without names are path and label.
    """
    delimiter = max(",;\t", key=text.readline().count)
    text.seek(0)
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    rows = [(reader.line_num, row) for row in reader if row]
    columns = [name.strip().lower() for name in rows[0][1]] if rows else []
    if len(columns) == 2 and os.path.splitext(columns[0])[1] and not {*FILE, *LABEL} & {*columns}:
        return [FILE[0], LABEL[0]], rows
    return columns, rows[1:]


def _parse_objects(text: io.StringIO) -> _Cells:
    objects = [
        (number, parse_json(line)) for number, line in enumerate(text, start=1) if line.strip()
    ]
    if wrong := [number for number, row in objects if not isinstance(row, dict)]:
        raise ValueError(f"line {wrong[0]} is not a JSON object")
    columns = list(dict.fromkeys(key for _, row in objects for key in row))
    return columns, [
        (number, [_format_json_value(row.get(key)) for key in columns]) for number, row in objects
    ]


def _format_json_value(value: object) -> str:
    return str(value) if isinstance(value, str | int | float) else ""


def _find_column(columns: Sequence[str], synonyms: Sequence[str]) -> int | None:
    return next((columns.index(name) for name in synonyms if name in columns), None)


def _get_cell(row: Sequence[str], column: int | None) -> str:
    return row[column].strip() if column is not None and column < len(row) else ""


def _read_sizes(folder: str, names: Sequence[str]) -> list[int]:
    """Return the size of each file, _MISSING or _FOLDER."""
    sizes = []
    for name in names:
        try:
            status = os.stat(os.path.join(folder, name))
            sizes.append(_FOLDER if S_ISDIR(status.st_mode) else status.st_size)
        except OSError:
            sizes.append(_MISSING)
    return sizes
