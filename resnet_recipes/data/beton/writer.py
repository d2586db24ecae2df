"""Write a .beton file in order, resume after a kill, and rename it when it is complete."""

import base64
import fcntl
import hashlib
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

import numpy as np

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.text import format_bytes
from resnet_recipes.data import beton as layout
from resnet_recipes.data.beton.sidecar import Sidecar, get_sidecar_path

#: One record of the journal: a sample that is safely on disk, or (size 0) a skipped image.
RECORD = np.dtype(
    [
        ("mode", "u1"),
        ("width", "<u2"),
        ("height", "<u2"),
        ("ptr", "<u8"),
        ("size", "<u8"),
        ("crc32", "<u4"),
        ("label", "<i8"),
    ]
)


def get_partial_path(path: Path) -> Path:
    """Return the path of a file while it is incomplete."""
    return path.with_name(path.name + ".partial")


def read_journal(path: Path, key: str) -> np.ndarray:
    """Return the records of an interrupted attempt of the same conversion at `path`, if any."""
    partial = get_partial_path(path)
    journal = _get_journal_path(path)
    head = f"{key}\n".encode()
    content = journal.read_bytes() if partial.exists() and journal.exists() else b""
    body = content[len(head) :] if content.startswith(head) else b""
    # an interrupted write may leave an incomplete last record
    records = np.frombuffer(body, RECORD, len(body) // RECORD.itemsize)
    is_complete = not len(records) or _find_end(records) <= partial.stat().st_size
    return records if is_complete else records[:0]


def _find_end(records: np.ndarray) -> int:
    return int(records["ptr"][-1] + records["size"][-1])


class BetonWriter:
    """A writer that appends samples to `path.partial`; `path.partial.journal` has the progress.

    Each `append` is on disk before the journal lists it. A journal of another conversion (another
    `key`) is discarded. `finish` writes the description and the header last. `publish` renames the
    file, so a file named `path` is complete and verified by its writer.
    """

    def __init__(self, path: Path, capacity: int, page_size: int, key: str):
        self.path, self.page_size = path, page_size
        # Both files stay open until finish or close.
        self._journal = open(_get_journal_path(path), "ab", buffering=0)  # noqa: SIM115
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._journal.close()
            raise NotReadyError.at(path, "is being written by another conversion") from error
        self.records = read_journal(path, key)
        self._journal.truncate(0)
        write_all(self._journal, f"{key}\n".encode() + self.records.tobytes())
        front = layout.METADATA_START + capacity * layout.SAMPLE.itemsize
        first = -(-front // page_size) * page_size
        self._end = _find_end(self.records) if len(self.records) else first
        partial = get_partial_path(path)
        self._file = open(  # noqa: SIM115
            partial, "r+b" if len(self.records) else "w+b", buffering=0
        )
        self._file.truncate(self._end)
        self._file.seek(self._end)

    def append(self, samples: Sequence[tuple[tuple, bytes]]) -> None:
        """Write samples: a record and the content, which is empty for a skipped image.

        Position and size in the records are ignored. Raises NotReadyError if the content of a
        sample exceeds a page.
        """
        records = np.array([record for record, _ in samples], RECORD)
        pieces = []
        for row, (_, data) in zip(records, samples, strict=True):
            if len(data) > self.page_size:
                page = format_bytes(self.page_size)
                clause = f"takes {format_bytes(len(data))}; a page of the file has {page}"
                size = f"{row['width']}x{row['height']}"
                raise NotReadyError.of("image", size, clause, "max_resolution=500")
            padding = -self._end % self.page_size
            if len(data) > padding and padding:
                pieces.append(bytes(padding))
                self._end += padding
            row["ptr"] = self._end
            row["size"] = len(data)
            pieces.append(data)
            self._end += len(data)
        for file, content in ((self._file, b"".join(pieces)), (self._journal, records.tobytes())):
            write_all(file, content)
            os.fsync(file.fileno())
        self.records = np.concatenate([self.records, records])

    def finish(self, about: dict) -> None:
        """Write the description, and a sidecar (with `about`) under the incomplete name."""
        written = self.records[self.records["size"] > 0]
        table = _pack_table(written)
        numbers = layout.VERSION, 2, self.page_size, len(written), self._end
        header = np.array([numbers], layout.HEADER).tobytes()
        rest = _describe_fields() + _pack_metadata(written)
        write_all(self._file, table)
        for offset, content in ((len(header), rest), (0, header)):
            self._file.seek(offset)
            write_all(self._file, content)
            os.fsync(self._file.fileno())
        sidecar = Sidecar(
            examples=len(written),
            bytes=self._end + len(table),
            structure=hashlib.sha256(header + rest + table).hexdigest(),
            crc32=base64.b64encode(written["crc32"].astype("<u4").tobytes()).decode(),
            **about,
        )
        atomic.write_text(get_sidecar_path(get_partial_path(self.path)), sidecar.dump())

    def publish(self) -> None:
        """Rename file and sidecar to their final names, and remove the journal."""
        partial = get_partial_path(self.path)
        os.replace(get_sidecar_path(partial), get_sidecar_path(self.path))
        os.replace(partial, self.path)
        _get_journal_path(self.path).unlink()
        self.close()
        atomic.sync_folder(self.path.parent)

    def discard(self) -> None:
        """Delete the partial file, so that the next attempt starts from scratch."""
        partial = get_partial_path(self.path)
        for path in (_get_journal_path(self.path), partial, get_sidecar_path(partial)):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files and keep them for the next attempt; safe to call twice."""
        self._file.close()
        self._journal.close()


def _get_journal_path(path: Path) -> Path:
    return path.with_name(path.name + ".partial.journal")


def _describe_fields() -> bytes:
    """Return the descriptors of the two fields, with the names in FFCV ImageNet files."""
    fields = np.zeros(2, layout.FIELD)
    fields["type_id"] = (layout.IMAGE_FIELD, layout.INT_FIELD)
    fields["name"] = (b"image", b"label")
    return fields.tobytes()


def _pack_metadata(records: np.ndarray) -> bytes:
    rows = np.zeros(len(records), layout.SAMPLE)
    for key in ("mode", "width", "height", "ptr"):
        rows["image"][key] = records[key]
    rows["label"] = records["label"]
    return rows.tobytes()


def _pack_table(records: np.ndarray) -> bytes:
    rows = np.zeros(len(records), layout.ALLOCATION)
    rows["sample"] = np.arange(len(records))
    rows["ptr"] = records["ptr"]
    rows["size"] = records["size"]
    return rows.tobytes()


def write_all(file: FileIO, data: bytes) -> None:
    """Write all data; a raw file may accept less at once, for example on a nearly full disk."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
