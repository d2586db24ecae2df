"""The note beside a .beton file: how it was made, what its classes are called, and the checksum of every sample."""

import base64
import binascii
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from resnet_recipes.errors import NotReadyError, Problem

_LARGEST = 1 << 30     # bytes; ImageNet's note has 7 MB


@dataclass(frozen=True)
class Sidecar:
    """What `resnet-recipes convert` writes to `train.beton.json`."""

    classes: tuple[str, ...]            # in label order
    examples: int
    bytes: int                          # of the .beton file
    structure: str                      # SHA-256 of everything in it that is not image content
    crc32: str                          # of every sample's bytes: base64 of little-endian uint32 [examples]
    source: str                         # folder or file that it was made from
    source_sha256: str                  # of the paths and sizes of the source's files
    skipped: tuple[str, ...]            # source images left out because they could not be read
    options: dict                       # of the conversion, the seed of the order included
    version: int = 1

    @property
    def checksums(self) -> np.ndarray:
        """CRC-32 of every sample, uint32 [examples]."""
        return np.frombuffer(base64.b64decode(self.crc32, validate=True), "<u4")

    def dump(self) -> str:
        """Return the text of the note."""
        return json.dumps(asdict(self), indent=1) + "\n"


def sidecar_path(beton: Path) -> Path:
    """Return where the note of a .beton file lies."""
    return beton.with_name(beton.name + ".json")


def pack_checksums(crc32: np.ndarray) -> str:
    """Return uint32 checksums as text."""
    return base64.b64encode(crc32.astype("<u4").tobytes()).decode()


def read_sidecar(beton: Path) -> Sidecar | None:
    """Read the note of a .beton file; None if there is none. Raises NotReadyError if there is one that makes no sense."""
    path = sidecar_path(beton)
    if not path.exists():
        return None
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("larger than any such note")
        content = json.loads(path.read_text(encoding="utf-8"))
        note = Sidecar(**{**content, "classes": tuple(content["classes"]), "skipped": tuple(content["skipped"])})
        if note.version != 1:
            raise ValueError(f"version {note.version}, and only version 1 can be read")
        if not all(isinstance(name, str) for name in note.classes) or len(set(note.classes)) != len(note.classes):
            raise ValueError("class names must be texts, and no two the same")
        if len(note.checksums) != note.examples:
            raise ValueError(f"{len(note.checksums)} checksums for {note.examples} examples")
    except (OSError, ValueError, TypeError, KeyError, RecursionError, binascii.Error) as error:
        rule, fix = f"is not a note that belongs to a .beton file ({error})", "convert again, or delete the note to go without class names"
        raise NotReadyError([Problem(str(path), None, rule, fix)]) from error
    return note
