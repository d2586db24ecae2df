"""Check the names of output files before the work of a command."""

import errno
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path

from resnet_recipes.base.errors import Command, NotReadyError, RecipeError
from resnet_recipes.base.paths import find_free_path, parse_new_path, parse_path
from resnet_recipes.report.page import GALLERY_HEAD, REPORT_HEAD

#: How the pages of each flag start; a later command replaces them.
_HEADS = {"--gallery": GALLERY_HEAD, "--out": REPORT_HEAD}


def is_stream(path: Path) -> bool:
    """Return whether a path is a pipe or a terminal that is already open, such as /dev/stdout."""
    return path.is_relative_to("/dev") and (path.is_fifo() or path.is_char_device())


def is_ours(flag: str, path: Path) -> bool:
    """Return whether a file is an earlier page of a flag."""
    if flag in _HEADS:
        with suppress(OSError), path.open("rb") as file:
            return file.read(999).startswith(_HEADS[flag].encode())
    return False


def check_output_file(flag: str, name: str, ending: str) -> None:
    """Raise NotReadyError if an output file cannot be created in its folder, before the work.

    Raises RecipeError if its ending is wrong, or if it has content and is not an earlier page.
    """
    path = parse_path(flag, name)
    if path.suffix != ending and not path.is_relative_to("/dev"):  # /dev/stdout
        path = path if path.name.strip(".") else path / flag.strip("-")
        fix: str = f"{flag} {shlex.quote(str(path.with_suffix(ending)))}"
        raise RecipeError.of(flag, name, f"must end in {ending}", fix)
    if not path.parent.is_dir():
        fix = Command.of("mkdir", "-p", str(path.parent))
        raise NotReadyError.of(flag, name, "cannot be written: its folder does not exist", fix)
    if path.is_dir():
        fix = f"{flag} {shlex.quote(str(find_free_path(path)))}"
        raise NotReadyError.of(flag, name, "cannot be written: it is a folder", fix)
    if is_stream(path):
        return
    if path.is_file() and path.stat().st_size and not is_ours(flag, path):
        parse_new_path(flag, name)
    folder = path.resolve().parent
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        is_virtual = error.errno == errno.ENOENT  # such as /proc
        reason = f"no file can be created in {folder}" if is_virtual else error.strerror
        fix = f"{flag} {shlex.quote(path.name)}"
        raise NotReadyError.of(flag, name, f"cannot be written: {reason}", fix) from None
