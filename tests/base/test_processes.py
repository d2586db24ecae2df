"""Worker processes: errors name missing resources, and no worker imports the program."""

import multiprocessing.synchronize  # noqa: F401  looks at the class that the test replaces
import sys
import threading
from multiprocessing import spawn
from types import ModuleType

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.processes import ProcessPool, hide_main_program


def test_missing_shared_memory_suggests_a_mount(monkeypatch):
    def fail(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("_multiprocessing.SemLock", fail)
    with pytest.raises(NotReadyError, match=r"/dev/shm.*Read-only(.|\n)*data.workers=0"):
        ProcessPool(2, [], print)


def test_hidden_main_program_is_not_sent_to_processes(monkeypatch):
    program = ModuleType("__main__")
    program.__file__ = "/train.py"
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert spawn.get_preparation_data("a")["init_main_from_path"] == "/train.py"
    with hide_main_program():
        assert not any("main" in key for key in spawn.get_preparation_data("a"))


def test_main_program_is_restored_after_two_threads():
    program = sys.modules["__main__"]
    entered = threading.Event()
    leaving = threading.Event()

    def hide() -> None:
        with hide_main_program():
            entered.set()
            leaving.wait(10)

    other = threading.Thread(target=hide)
    with hide_main_program():
        other.start()
        entered.wait(0.2)
    leaving.set()
    other.join()
    assert sys.modules["__main__"] is program
