"""The files that a command writes because a flag names them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.base.text import csv_line
from resnet_recipes.commands.arguments import Arguments


@contextmanager
def opened_file(flag: str, name: str) -> Iterator[BinaryIO]:
    """Open the file of a flag, which gets its name once it is whole. Raises NotReadyError."""
    try:
        # /dev/stdout is a link, which root could replace
        path = typed_path(flag, name).resolve()
        with suppress(OSError):
            atomic.delete_parts(path.parent, path.name)  # of a command that was killed
        with atomic.replacing(path) as file:
            yield file
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise NotReadyError.of(flag, name, rule, f"{flag} FILE") from None


def write_csv(arguments: Arguments, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows, the names of their values first, to the file of --csv if there is one."""
    if name := arguments.flags.get("--csv"):
        lines = [rows[0], *(row.values() for row in rows)] if rows else []
        with opened_file("--csv", name) as file:
            file.write("".join(map(csv_line, lines)).encode())
