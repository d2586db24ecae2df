"""The folder of a run: someone else may have filled it, and another run may take its place."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from resnet_recipes.base.errors import NotReadyError, TrainingError


def refuse_links(folder: Path) -> None:
    """Raise NotReadyError if anything in a run folder is neither a plain file nor a folder.

    A run writes to `lock`, `logs/`, `checkpoints/` and more: a link that someone else put there
    would redirect it.
    """
    rule = (
        "is a symbolic link or a special file, which no run creates: the run would write to "
        "where it leads"
    )
    if found := next(_odd(folder), None):
        raise NotReadyError.of(
            str(found), None, rule, "remove it, or replace it with what it points to"
        )


def _odd(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _odd(Path(entry))
            elif not entry.is_file(follow_symlinks=False):
                yield Path(entry)


class HeldFolder:
    """A run folder kept open, so that no other folder can get its inode and be mistaken for it."""

    def __init__(self, path: Path):
        self.path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    @property
    def is_in_place(self) -> bool:
        """Return whether the path still refers to the folder that was opened."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._handle))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            # a network disk that does not answer is waited for elsewhere
            return error.errno != errno.ESTALE

    def confirm(self) -> None:
        """Raise TrainingError if the folder was moved, deleted, or replaced by another."""
        if not self.is_in_place:
            raise TrainingError(f"{self.path} was moved, deleted or replaced during the run")
