"""Images reach the disk before the journal lists them, and the file before it gets its name."""

import os
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.data.beton import HEADER
from resnet_recipes.data.beton.writer import RECORD, BetonWriter


@pytest.fixture
def syncs(monkeypatch) -> list[str]:
    noted, sync, replace = [], os.fsync, os.replace

    def note_sync(number: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{number}"))
        is_begun = path.suffix == ".partial" and not any(path.read_bytes()[: HEADER.itemsize])
        noted.append(f"{path.name}{' without a header' if is_begun else ''}")
        sync(number)

    def note_rename(old: Path, new: Path) -> None:
        noted.append(f"-> {Path(new).name}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    return noted


def test_images_are_synced_before_their_journal(tmp_path, syncs):
    writer = BetonWriter(tmp_path / "a.beton", 2, 1 << 12, "key")
    for _ in range(2):
        writer.append([(np.zeros((), RECORD), b"pixels")])
    writer.close()
    assert syncs == 2 * ["a.beton.partial without a header", "a.beton.partial.journal"]


def test_header_is_synced_after_images_before_rename(tmp_path, syncs):
    writer = BetonWriter(tmp_path / "a.beton", 1, 1 << 12, "key")
    writer.append([(np.zeros((), RECORD), b"pixels")])
    syncs.clear()
    writer.finish({"classes": (), "source": "", "source_sha256": "", "skipped": (), "options": {}})
    writer.publish()
    assert syncs[:2] == ["a.beton.partial without a header", "a.beton.partial"]
    assert syncs[-3:] == ["-> a.beton.json", "-> a.beton", tmp_path.name]
