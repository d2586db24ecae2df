"""A .beton file is on disk before its journal says so."""

import os
from pathlib import Path

import numpy as np

from resnet_recipes.data.beton.writer import RECORD, BetonWriter


def test_images_are_on_disk_before_the_journal_and_the_journal_before_the_next(
    tmp_path, monkeypatch
):
    synced, sync = [], os.fsync

    def noted(number: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{number}")).name)
        sync(number)

    writer = BetonWriter(tmp_path / "a.beton", 2, 1 << 12, "key")
    monkeypatch.setattr(os, "fsync", noted)
    record = np.zeros((), RECORD)
    for _ in range(2):
        writer.append([(record, b"pixels")])
    writer.close()
    assert synced == 2 * ["a.beton.partial", "a.beton.partial.journal"]
