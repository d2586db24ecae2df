"""Choose a local disk with enough free space for copies of remote images."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from resnet_recipes.base.errors import NotReadyError, Value
from resnet_recipes.base.paths import find_existing_parent, find_folder_problem, get_cache_folder
from resnet_recipes.base.text import format_bytes

#: File systems on other machines (possibly fuse.*) and in memory.
_EXCLUDED_TYPES = {"nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "gpfs", "beegfs", "afs", "9p"}
_EXCLUDED_TYPES |= {"tmpfs", "ramfs"}


def find_copy(cache: str, name: str) -> Path | None:
    """Return the folder `name` in data.cache or on a local disk, if it exists.

    Raises NotReadyError if it does not belong to this user.
    """
    for folder in _list_copy_folders(cache):
        if (folder / name).is_dir():
            return check_owner(folder / name)
    return None


def check_owner(folder: Path) -> Path:
    """Return the folder of a copy. Raises NotReadyError if another user may have written to it.

    A group-writable folder is accepted, because Kubernetes opens volumes to the group of a pod.
    """
    facts = folder.lstat()
    is_own = facts.st_uid == os.getuid() and not facts.st_mode & stat.S_IWOTH
    if is_own and stat.S_ISDIR(facts.st_mode):
        return folder
    rule = "must be your own folder, and not writable by everyone"
    raise NotReadyError.of("data.cache", str(folder), rule, Value("/another/folder"))


def make_folder(folder: Path) -> None:
    """Create the folder of a copy if needed. Raises NotReadyError as `check_owner` does."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    check_owner(folder)


def choose_folder(cache: str, name: str, part: str, needed: int) -> Path:
    """Return a folder `name` for `needed` bytes, including the bytes in its subfolder `part`.

    Raises NotReadyError if no disk has enough free space.
    """
    existing = find_copy(cache, name)
    problems = []
    for folder in [existing.parent] if existing else _list_copy_folders(cache):
        blocks = sum(path.lstat().st_blocks for path in (folder / name / part).rglob("*"))
        missing_bytes = needed - 512 * blocks
        need = f"the copy needs {format_bytes(missing_bytes)}"
        problem = find_folder_problem("data.cache", folder, missing_bytes, need)
        if problem is None:
            return folder / name
        problems.append(problem)
    raise NotReadyError(problems)


def _list_copy_folders(cache: str) -> list[Path]:
    """Return the folders that may hold copies, best first."""
    if cache:
        return [Path(cache)]
    temporary = Path(tempfile.gettempdir()) / f"resnet-recipes-{os.getuid()}"
    folders = [get_cache_folder() / "data", temporary]
    return [folder for folder in folders if is_local(folder)] or folders[:1]


def is_local(folder: Path) -> bool:
    """Return whether a folder is on a local disk and was not created by another user."""
    existing = find_existing_parent(folder)
    facts = os.stat(existing)
    if existing == folder.absolute() and (folder.is_symlink() or facts.st_uid != os.getuid()):
        return False
    number = f"{os.major(facts.st_dev)}:{os.minor(facts.st_dev)}"
    kinds = [kind for device, kind in _iterate_mounts() if device == number]
    return not any(kind in _EXCLUDED_TYPES or kind.startswith("fuse") for kind in kinds)


def _iterate_mounts() -> Iterator[tuple[str, str]]:
    """Yield the device number and the type of each mounted file system (Linux)."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        yield line.split()[2], line.partition(" - ")[2].split(" ")[0]
