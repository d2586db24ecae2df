"""Worker processes: what a machine may lack for them is named, and none imports the program."""

import multiprocessing.synchronize  # noqa: F401  looks at the class that the test replaces
import sys
import threading
from multiprocessing import spawn
from types import ModuleType

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.processes import ProcessPool, main_program_hidden_from_multiprocessing


def test_a_machine_without_shared_memory_is_told_what_to_mount(monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("_multiprocessing.SemLock", refuse)
    with pytest.raises(NotReadyError, match=r"/dev/shm.*Read-only(.|\n)*data.workers=0"):
        ProcessPool(2, [], print)


def test_multiprocessing_tells_a_process_of_no_program_while_it_is_hidden(monkeypatch):
    program = ModuleType("__main__")
    program.__file__ = "/train.py"
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert spawn.get_preparation_data("a")["init_main_from_path"] == "/train.py"
    with main_program_hidden_from_multiprocessing():
        assert not any("main" in key for key in spawn.get_preparation_data("a"))


def test_the_program_is_restored_after_two_threads_have_hidden_it():
    program, entered, leaving = sys.modules["__main__"], threading.Event(), threading.Event()

    def hide() -> None:
        with main_program_hidden_from_multiprocessing():
            entered.set()
            leaving.wait(10)

    other = threading.Thread(target=hide)
    with main_program_hidden_from_multiprocessing():
        other.start()
        entered.wait(0.2)
    leaving.set()
    other.join()
    assert sys.modules["__main__"] is program
