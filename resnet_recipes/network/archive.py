"""Read tensors from untrusted files; each file is checked before torch reads it."""

import os
import pickletools
import zipfile
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from resnet_recipes.base.errors import Hint
from resnet_recipes.base.names import DOCS
from resnet_recipes.base.reading import open_regular
from resnet_recipes.base.text import get_first_line
from resnet_recipes.data.tensors import MAX_ENTRIES

State = dict[str, Any]  # nested dictionaries and lists of tensors, str, int, float, bool and None

#: The only globals that pickles of tensors and plain Python need. A file with any other global is
#: rejected without loading it.
_ALLOWED_GLOBALS = frozenset(
    {
        "collections OrderedDict",
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        *(
            f"torch {kind}Storage"
            for kind in (
                "Double",
                "Float",
                "Half",
                "BFloat16",
                "Long",
                "Int",
                "Short",
                "Char",
                "Byte",
                "Bool",
            )
        ),
    }
)

#: Limits of a pickle. A ResNet-152 with momentum, EMA and 21,000 classes needs
#: 0.7 MB and 120,000 opcodes for 2,300 entries. A file at these limits takes 2 s to read.
_MAX_PICKLE_BYTES = 8 << 20
_MAX_OPCODES = 500_000

#: Before torch 1.6, torch.save wrote a pickled number, three more pickles (version, system,
#: content), the pickled keys of the storages, and then their bytes.
_OLD_MAGIC, _OLD_PICKLES = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", 4

#: Maximum bytes of a file. The checkpoint of a ResNet-152 with AdamW, EMA and 21,000 classes takes
#: 1.7 GB.
MAX_ARCHIVE_BYTES = 8 << 30


class ArchiveError(ValueError):
    """The file is damaged, or contains more than tensors and plain Python.

    The message is a sentence without the path.
    """


class ForeignObjectError(ArchiveError):
    """The file contains an object, such as a complete network, instead of tensors."""

    def __init__(self, name: str):
        super().__init__(f"it names {name!a}, which tensors do not need: it may run code")
        hint = "save tensors instead: torch.save(model.state_dict(), FILE)"
        if name.startswith("ultralytics."):
            hint = f"networks of Ultralytics cannot be loaded: {DOCS}/from/ultralytics"
        self.fix = (Hint(hint),)


class DamagedError(ArchiveError):
    """The file cannot be parsed."""

    fix = (Hint("copy it again, or use another file that torch.save or safetensors wrote"),)


def read(path: Path, check_crc: bool = True) -> State:
    """Return a saved dictionary of tensors and plain Python, on the CPU.

    It is memory-mapped, except in the format that torch.save wrote before torch 1.6. Nothing in the
    file is executed. The zip directory and the names in the pickles are checked first, then torch
    reads the file with weights_only. `check_crc` checks the CRCs, which torch does not
    (pytorch/pytorch#126952). Pass False if you already checked a digest. Raises ArchiveError if the
    file is damaged or contains other objects, and OSError if it cannot be read.
    """
    try:
        is_zip = _check_archive(path, check_crc)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except (ArchiveError, OSError):
        raise
    except (EOFError, zipfile.BadZipFile):
        raise DamagedError("it is damaged or incomplete") from None
    except Exception as error:  # zipfile and torch raise many types of errors for damaged files
        message = f"it is damaged or incomplete ({type(error).__name__}: {get_first_line(error)})"
        raise DamagedError(message) from None
    if not isinstance(state, dict):
        raise ArchiveError(f"it contains a {type(state).__name__}, not a dictionary")
    _check_plain(state)
    return state


def _check_archive(path: Path, check_crc: bool) -> bool:
    """Check a file and return whether it is a zip. Raises ArchiveError if it is not safe.

    A safe file is uncompressed and within the limits, and its pickles name only tensors.
    """
    with open_regular(path, MAX_ARCHIVE_BYTES) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise ArchiveError("it is empty")
        start = file.read(len(_OLD_MAGIC))
        if start == _OLD_MAGIC:
            pickles = BytesIO(file.read(_MAX_PICKLE_BYTES))
            for _ in range(_OLD_PICKLES):
                _check_pickle(pickles)
            return False
        if not start.startswith(b"PK\x03\x04"):
            raise ArchiveError("it is not a file that torch.save wrote")
        archive = zipfile.ZipFile(_Bounded(file.fileno(), closefd=False))
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if len(entries) > MAX_ENTRIES or len(set(names)) < len(names):
            raise ArchiveError("its directory has too many or duplicate entries")
        if any(
            entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size
            for entry in entries
        ):
            raise ArchiveError(
                "it has compressed entries, which torch.save never writes: it may be a zip bomb"
            )
        if sum(entry.file_size for entry in entries) > size:
            raise ArchiveError("its entries are larger than the file")
        pickles = [entry for entry in entries if entry.filename.endswith(".pkl")]
        if (
            len(pickles) != 1
            or not pickles[0].filename.endswith("/data.pkl")
            or pickles[0].file_size > _MAX_PICKLE_BYTES
        ):
            raise ArchiveError(
                "it does not have exactly one data.pkl of reasonable size, as written by torch.save"
            )
        _check_pickle(BytesIO(archive.read(pickles[0])))
        if check_crc and (bad := archive.testzip()):
            raise ArchiveError(f"checksum mismatch in its entry {bad}")
        return True


class _Bounded(FileIO):
    """A file that limits the size of each read, since zipfile reads a directory of any size."""

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes. Raises ArchiveError if `size` is too large."""
        data = super().read(size if 0 <= size <= _MAX_PICKLE_BYTES else _MAX_PICKLE_BYTES + 1)
        if len(data) > _MAX_PICKLE_BYTES:
            raise ArchiveError("its directory is too long")
        return data


def _check_pickle(pickle: BytesIO) -> None:
    """Raise ArchiveError if the next pickle is too long or names forbidden globals.

    The pickle is parsed, not run.
    """
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickle)):
        if count > _MAX_OPCODES:
            raise ArchiveError("its pickle is too long for tensors")
        if opcode.name == "GLOBAL" and argument not in _ALLOWED_GLOBALS:
            raise ForeignObjectError(str(argument).replace(" ", "."))
        if opcode.name in ("STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4"):
            raise ArchiveError(
                f"its pickle uses {opcode.name}, which tensors do not need: it may run code"
            )
        if isinstance(argument, int) and not -(2**63) <= argument < 2**63:
            # large integer keys can be chosen to collide in a dictionary
            raise ArchiveError("it contains an integer of more than 64 bits")


def _check_plain(value: Any) -> None:
    """Raise ArchiveError unless `value` is tensors and plain Python, with sufficient storage."""
    pending = [value]
    seen = set()
    while pending:
        item = pending.pop()
        if id(item) in seen:  # a list may contain itself, or the same list a million times
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            available = item.untyped_storage().nbytes()
            if item.numel() * item.element_size() > available:
                raise ArchiveError(
                    f"a tensor of shape {tuple(item.shape)} has only {available} bytes"
                )
        elif isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            pending += item
        elif not (item is None or isinstance(item, str | int | float)):
            raise ArchiveError(
                f"it contains a {type(item).__name__}; only tensors and plain Python are allowed"
            )
