"""The sidecar of a .beton file: its origin, its class names and a checksum per sample."""

import base64
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from resnet_recipes.base.errors import Command, Hint, NotReadyError, to_text
from resnet_recipes.base.reading import read_json
from resnet_recipes.data.root import SPLITS

_MAX_BYTES = 1 << 30  # bytes; ImageNet's sidecar takes 7 MB


@dataclass(frozen=True)
class Sidecar:
    """The contents of `train.beton.json`, which `resnet-recipes convert` writes."""

    classes: tuple[str, ...]  # class names in label order
    examples: int
    bytes: int  # size of the .beton file
    structure: str  # SHA-256 of everything in the file except image content
    crc32: str  # CRC-32 of each sample's bytes: base64 of little-endian uint32 [examples]
    source: str  # source folder or file
    source_sha256: str  # first half of the SHA-256 of the paths and sizes of the source files
    skipped: tuple[str, ...]  # source images skipped because they could not be read
    options: dict  # conversion options, including the seed of the order
    version: int = 1
    split: str = ""  # train or val; empty: a single file

    @property
    def checksums(self) -> np.ndarray:
        """CRC-32 of every sample, uint32 [examples]."""
        return np.frombuffer(base64.b64decode(self.crc32, validate=True), "<u4")

    def dump(self) -> str:
        """Return the content of the sidecar."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def make_repair_command(self, beton: Path) -> Command:
        """Return the command that replaces a damaged file and keeps the old file."""
        target = beton.parent if self.split else beton
        options = [
            f"{key}={'null' if value is None else to_text(value)}"
            for key, value in self.options.items()
            if key != "workers"
        ]
        move = Command.of("mv", str(beton), f"{beton}.damaged")
        convert = Command.of("resnet-recipes", "convert", str(self.source), str(target), *options)
        return Command(f"{move} && {convert}")


def make_half_source(source_sha256: str) -> str:
    """Return the `source_sha256` of a small level made from the same source."""
    return f"{source_sha256} halved"


def get_sidecar_path(beton: Path) -> Path:
    """Return the path of the sidecar of a .beton file."""
    return beton.with_name(beton.name + ".json")


def read_sidecar(beton: Path) -> Sidecar | None:
    """Read the sidecar of a .beton file; None if it does not exist.

    Raises NotReadyError if it is damaged.
    """
    path = get_sidecar_path(beton)
    if not os.path.lexists(path):
        return None
    try:
        content = read_json(path, _MAX_BYTES)
        lists = {key: tuple(content[key]) for key in ("classes", "skipped")}
        sidecar = Sidecar(**content | lists | {"options": dict(content["options"])})
        names = sidecar.classes
        count = len(sidecar.checksums)
        if sidecar.version != 1:
            raise ValueError(f"version {sidecar.version}, but only version 1 can be read")
        if sidecar.split not in ("", *SPLITS):
            raise ValueError(f"split {sidecar.split!r} is not one of {', '.join(SPLITS)}")
        if len({name for name in names if isinstance(name, str)}) != len(names):
            raise ValueError("class names must be different strings")
        if count != sidecar.examples:
            raise ValueError(f"{count} checksums for {sidecar.examples} examples")
    except (NotReadyError, ValueError, TypeError, KeyError) as error:
        reason = error.problems[0].about("it") if isinstance(error, NotReadyError) else error
        hint = Hint("or convert again: without this file, classes have numbers as names")
        fix = (Command.of("rm", str(path)), hint)
        clause = f"is not the sidecar of a .beton file ({reason})"
        raise NotReadyError.at(path, clause, fix) from error
    return sidecar
