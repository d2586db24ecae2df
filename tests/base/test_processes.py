"""Worker processes: what a machine may lack for them is named."""

import multiprocessing.synchronize  # noqa: F401  looks at the class that the test replaces

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.processes import process_pool


def test_a_machine_without_shared_memory_is_told_what_to_mount(monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("_multiprocessing.SemLock", refuse)
    with pytest.raises(NotReadyError, match=r"/dev/shm.*Read-only(.|\n)*data.workers=0"):
        process_pool(2, [], print)
