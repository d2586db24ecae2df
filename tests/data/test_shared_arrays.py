"""Arrays in memory that processes share by name."""

import mmap
import multiprocessing
import os
from contextlib import suppress
from pathlib import Path

import pytest

from resnet_recipes.data.shared_arrays import SharedArrays

LAYOUT = {"numbers": ("i8", (3,)), "rest": ("u1", (1 << 40,))}


@pytest.fixture
def memory_name(request: pytest.FixtureRequest) -> str:
    return f"resnet-recipes {request.node.name[:40]} {os.getpid()}"


def open_arrays(name: str) -> SharedArrays:
    return SharedArrays.open_named(name, **LAYOUT)


def list_descriptors(name: str) -> list[Path]:
    """Return this process's open descriptors of the memory file with a name."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the folder itself
            links += [link] if os.readlink(link) == f"/memfd:{name} (deleted)" else []
    return links


def count_up(name: str, place: int, barrier) -> None:
    """Join at the same time as others, and record this in the arrays."""
    barrier.wait()
    arrays = open_arrays(name)
    arrays["numbers"][place] = 1
    barrier.wait()
    assert arrays["numbers"].tolist() == [1, 1, 1]


def test_shared_arrays_are_one_memory_for_all_processes(memory_name):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    processes = [context.Process(target=count_up, args=(memory_name, i, barrier)) for i in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]


def test_shared_arrays_are_freed_with_their_last_user(memory_name):
    first = open_arrays(memory_name)
    second = open_arrays(memory_name)
    first["numbers"][:] = 5
    assert second["numbers"].tolist() == [5, 5, 5]
    del first
    assert list_descriptors(memory_name)
    del second
    assert not list_descriptors(memory_name)
    assert open_arrays(memory_name)["numbers"].tolist() == [0, 0, 0]


def test_oversized_shared_arrays_take_only_written_pages(memory_name):
    arrays = open_arrays(memory_name)
    arrays["rest"][[0, 1 << 39, -1]] = 1
    assert (
        list_descriptors(memory_name)[0].stat().st_blocks * 512 < 10 << 20
    )  # three pages, huge pages if allowed


def test_freed_end_of_shared_array_reads_zero(memory_name):
    page = mmap.PAGESIZE
    layout = {"numbers": ("i8", (3,)), "rest": ("u1", (8 * page - 5,))}
    arrays, other = (SharedArrays.open_named(memory_name, **layout) for _ in range(2))
    arrays["numbers"][:] = 5
    arrays["rest"][:] = 7
    for pages in (6, 6, 0):
        arrays.free("rest", pages * page)
        assert list_descriptors(memory_name)[0].stat().st_blocks * 512 == (1 + pages) * page
        assert other["numbers"].tolist() == [5, 5, 5]
        assert other["rest"].tolist() == [7] * pages * page + [0] * ((8 - pages) * page - 5)


def test_shared_arrays_of_another_layout_share_nothing(memory_name):
    first = open_arrays(memory_name)
    first["numbers"][:] = 5
    other = SharedArrays.open_named(memory_name, numbers=("i8", (3,)))
    assert other["numbers"].tolist() == [0, 0, 0]
