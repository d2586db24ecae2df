"""The images in parquet files of Hugging Face datasets."""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.extras import remedy
from resnet_recipes.base.reading import MAX_BYTES, open_regular, parse_json
from resnet_recipes.data.files.table import LABEL

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

#: The most bytes of a group of rows, of which each process keeps one.
_MOST_GROUP = 1 << 30

_END = 8  # bytes of a file: the size of the description before them, and PAR1


def rows(path: Path) -> Iterator[tuple[int | str, int, int]]:
    """Yield the label of each row, its number, and that of the first row in its group.

    Raises NotReadyError if the file has no images with labels.
    """
    file = _parquet(path)
    columns = file.schema_arrow.names
    label = next((name for name in LABEL if name in columns), None)
    if "image" not in columns or label is None:
        raise NotReadyError.at(
            path, f"needs columns image and label, and has {', '.join(columns[:8])}"
        )
    row = 0
    for number in range(file.num_row_groups):
        first = row
        try:
            for value in _column(file, number, label):
                if not _is_label(value):
                    raise NotReadyError.at(path, f"has no label in row {row}")
                yield value, row, first
                row += 1
        except (ValueError, OSError) as error:
            raise NotReadyError.at(path, f"cannot be read: {error}") from None


def _is_label(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= 200
    return isinstance(value, int) and 0 <= value < 10**6


def _column(file: "ParquetFile", group: int, name: str) -> Iterator[Any]:
    """Yield the values of a column in a group of rows. Raises ValueError or OSError."""
    from pyarrow import ArrowException

    try:
        for batch in file.iter_batches(64, row_groups=[group], columns=[name]):
            yield from batch[name].to_pylist()
    except ArrowException as error:
        raise ValueError(str(error)) from None


def names(path: Path) -> object:
    """Return the names of the classes in Hugging Face's description; None without one."""
    try:
        said = parse_json(_parquet(path).schema_arrow.metadata[b"huggingface"].decode())
        features = said["info"]["features"]
        return next(features[name]["names"] for name in LABEL if name in features)
    except (TypeError, KeyError, ValueError, StopIteration):
        return None


@lru_cache(maxsize=1)
def group(path: str, first: int) -> list[bytes]:
    """Return the images of the group of rows that begins with row `first`."""
    file, start = _parquet(Path(path)), 0
    for number in range(file.num_row_groups):
        if start == first:
            found, size = [], 0
            for cell in _column(file, number, "image"):
                content = cell.get("bytes") if isinstance(cell, dict) else cell
                found.append(content if isinstance(content, bytes) else b"")
                size += len(found[-1])
                if size > _MOST_GROUP:
                    raise ValueError(f"its group of rows has more than {_MOST_GROUP:,} bytes")
            return found
        start += file.metadata.row_group(number).num_rows
    raise ValueError("the file has changed")


def _parquet(path: Path) -> "ParquetFile":
    """Open a parquet file. Raises NotReadyError if pyarrow is missing, or the file damaged."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        rule = "needs the package pyarrow"
        raise NotReadyError.at(path, rule, remedy("parquet")) from None
    try:
        with open_regular(path) as file:  # pyarrow takes a description of any size into memory
            file.seek(-_END, os.SEEK_END)
            if int.from_bytes(file.read(4), "little") > MAX_BYTES:
                raise OSError(f"its description is larger than {MAX_BYTES:,} bytes")
        return ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise NotReadyError.at(path, f"cannot be read as a parquet file: {error}") from None
