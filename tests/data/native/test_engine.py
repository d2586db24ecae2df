"""The native engine: threads, forks, files, reading ahead, memory."""

import ctypes
import mmap
import os
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.data.native.engine import fill
from resnet_recipes.data.native.rows import BOX, ROW, Status
from tests.data.native.batch import Batch, encoded, photo

BOXES = [(n % 50, n % 30, 100 + n % 60, 90 + n % 20) for n in range(200)]


@pytest.fixture(scope="module")
def jpeg() -> bytes:
    """A JPEG of a few kilobytes."""
    return encoded(photo(), quality=90)


def test_threads_that_fill_batches_at_the_same_time_do_not_disturb_each_other(built, jpeg):
    alone, *others = (Batch([jpeg] * 200, 32, box=BOXES) for _ in range(5))
    assert not alone.filled().any()
    with ThreadPoolExecutor(4) as threads:
        assert not any(status.any() for status in threads.map(Batch.filled, others))
    for other in others:
        assert np.array_equal(alone.pixels, other.pixels)


def test_an_empty_batch_is_filled(built):
    assert not len(fill(np.zeros(0, ROW), np.zeros(0, bool)))


def test_a_row_that_fails_leaves_the_others_alone(built, jpeg):
    batch = Batch([jpeg, b"not an image at all", jpeg], 32, box=BOXES[:3])
    assert batch.filled().tolist() == [Status.DONE, Status.FOREIGN, Status.DONE]
    assert (batch.pixels[1] == 77).all()


class FileBatch(Batch):
    """One row, whose image is FOLDER/class/one.jpg."""

    def __init__(self, folder: Path, jpeg: bytes):
        super().__init__([jpeg], 32, box=BOXES[0])
        (folder / "class").mkdir()
        self.path = folder / "class" / "one.jpg"
        self.path.write_bytes(jpeg)
        self._folder = np.frombuffer(os.fsencode(folder) + b"\0", np.uint8)
        self._name = np.frombuffer(b"class/one.jpg and more", np.uint8)
        self.rows["data"], self.rows["folder"], self.rows["path"] = 0, self._folder.ctypes.data, self._name.ctypes.data
        self.rows["length"] = len("class/one.jpg")


def test_files_are_read_by_folder_and_name(built, jpeg, tmp_path):
    from_file, from_memory = FileBatch(tmp_path, jpeg), Batch([jpeg], 32, box=BOXES[0])
    assert not from_file.filled().any()
    from_memory.filled()
    assert np.array_equal(from_file.pixels, from_memory.pixels)


def drop_from_page_cache(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def is_in_page_cache(path: Path) -> bool:
    """Return whether the first page of a file is in memory, without reading it."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        address, resident = np.frombuffer(content, np.uint8).ctypes.data, ctypes.c_ubyte()
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(1), ctypes.byref(resident)) == 0
        return bool(resident.value & 1)


def test_files_are_fetched_before_their_turn(built, jpeg, tmp_path):
    file = FileBatch(tmp_path, jpeg)
    drop_from_page_cache(file.path)
    if is_in_page_cache(file.path):
        pytest.skip("the temporary folder is in memory")
    slow = Batch([encoded(photo(0, 1500, 2000), quality=95)] * 7, 32, box=(0, 0, 2000, 1500))
    rows, reading = np.concatenate([slow.rows, file.rows]), np.ones(8, bool)
    thread = threading.Thread(target=fill, args=(rows, reading))
    thread.start()
    while not is_in_page_cache(file.path):
        time.sleep(0.001)
    assert not reading[7]
    assert thread.is_alive()
    thread.join()
    assert not rows["status"].any()


def anonymous_memory() -> int:
    """Return the memory of this process that is not backed by files, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def test_threads_give_back_the_memory_of_a_large_file(built, tmp_path):
    large = FileBatch(tmp_path, b"")
    os.truncate(large.path, 40 << 20)
    parts, before = [np.repeat(large.rows, 4) for _ in range(4)], anonymous_memory()
    with ThreadPoolExecutor(4) as threads:
        refused = threads.map(lambda rows: len(fill(rows, np.ones(4, bool))), parts)
        assert list(refused) == [4] * 4
        assert anonymous_memory() - before < 60 << 20          # two threads that kept theirs would have 80


def test_a_changed_image_is_noticed_by_its_checksum(built, jpeg):
    batch = Batch([jpeg, jpeg], 32, box=BOXES[:2], checked=True, crc=[zlib.crc32(jpeg), zlib.crc32(jpeg) ^ 1])
    assert batch.filled().tolist() == [Status.DONE, Status.ALTERED]


def test_raw_pixels_are_those_that_were_given(built):
    raw = np.asarray(photo())
    batch = Batch([raw], 60, geometry=BOX, box=(11, 13, 60, 60), size=raw.shape[:2], raw=True)
    assert not batch.filled().any()
    assert np.array_equal(batch.pixels[0], raw[13:73, 11:71])


def test_the_interpreter_is_free_meanwhile_and_sees_which_row_is_being_read(built):
    image = encoded(photo(0, 1500, 2000), quality=95)
    batch, reading, seen = Batch([image] * 40, 224, box=(0, 0, 2000, 1500)), np.zeros(40, bool), set()
    thread = threading.Thread(target=fill, args=(batch.rows, reading))
    thread.start()
    while thread.is_alive():
        seen |= set(np.flatnonzero(reading).tolist())
        time.sleep(0.001)
    assert len(seen) > 1
    assert not reading.any()
    assert not batch.rows["status"].any()


def test_a_forked_child_can_fill_rows_too(built, jpeg):
    batch = Batch([jpeg], 32, box=BOXES[0])
    assert not batch.filled().any()
    child = os.fork()
    if not child:
        os._exit(int(batch.filled().any()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("rows", [np.zeros(3), np.zeros(2, ROW)])
def test_rows_must_be_rows_and_each_has_a_mark(built, rows):
    with pytest.raises(AssertionError):
        fill(rows, np.zeros(3, bool))
