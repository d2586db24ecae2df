"""The pool of native threads.

Tickets, several batches at once, look-ahead, closing, forks and signals.
"""

import ctypes
import mmap
import os
import resource
import signal
import threading
import time
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.data.native import NativeDecoder
from resnet_recipes.data.native.rows import BOX, Status, make_blank_rows
from tests.data.native.batch import Batch
from tests.shared.images import encode_image, make_photo

BOXES = [(n % 50, n % 30, 100 + n % 60, 90 + n % 20) for n in range(200)]


@pytest.fixture(scope="module")
def jpeg() -> bytes:
    return encode_image(make_photo(), quality=90)


def test_decoder_pixels_are_independent_of_thread_count(require_decoder, jpeg):
    images = []
    for threads in (1, 2, 7):
        with closing(NativeDecoder(threads)) as decoder:
            images.append(Batch([jpeg] * 200, 32, box=BOXES).decode(decoder))
    assert np.array_equal(images, images[:1] * 3)


def test_decoder_batches_can_be_awaited_in_any_order(decoder, jpeg):
    batches = [Batch([jpeg] * 20, 16 + n, box=BOXES[:20]) for n in range(6)]
    tickets = [decoder.submit(batch.rows) for batch in batches]
    assert len(set(tickets)) == 6
    for ticket, batch in reversed(list(zip(tickets, batches, strict=True))):
        assert decoder.wait(ticket, 30)
        assert not batch.rows["status"].any()
        assert (batch.pixels != 77).any(axis=(1, 2, 3)).all()


def test_empty_decoder_batch_is_complete_at_once(decoder):
    assert decoder.wait(decoder.submit(make_blank_rows(0)), 0)


class FileBatch(Batch):
    def __init__(self, folder: Path, jpeg: bytes):
        super().__init__([jpeg], 32, box=BOXES[0])
        (folder / "class").mkdir()
        self.path = folder / "class" / "one.jpg"
        self.path.write_bytes(jpeg)
        self._folder = np.frombuffer(os.fsencode(folder) + b"\0", np.uint8)
        self._name = np.frombuffer(b"class/one.jpg and more", np.uint8)
        self.rows["data"] = 0
        self.rows["folder"] = self._folder.ctypes.data
        self.rows["path"] = self._name.ctypes.data
        self.rows["length"] = len("class/one.jpg")


def test_decoder_reads_files_by_folder_and_name(decoder, jpeg, tmp_path):
    from_file = FileBatch(tmp_path, jpeg)
    from_memory = Batch([jpeg], 32, box=BOXES[0])
    assert np.array_equal(from_file.decode(decoder), from_memory.decode(decoder))


def is_in_page_cache(path: Path) -> bool:
    """Return whether the first page of a file is in the page cache, without reading it."""
    resident = ctypes.c_ubyte()
    library = ctypes.CDLL(None)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        address = ctypes.c_void_p(np.frombuffer(content, np.uint8).ctypes.data)
        assert not library.mincore(address, ctypes.c_size_t(1), ctypes.byref(resident))
        return bool(resident.value & 1)


def test_decoder_prefetches_files_before_decoding(require_decoder, jpeg, tmp_path):
    late = FileBatch(tmp_path, jpeg)
    with late.path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if is_in_page_cache(late.path):
        pytest.skip("the temporary folder is in memory")
    with closing(NativeDecoder(1)) as decoder:
        early = Batch([jpeg] * 3000, 64, box=(0, 0, 150, 150))
        for batch in (early, late):
            decoder.submit(batch.rows)
    assert late.rows["status"].tolist() == [Status.CANCELLED]
    patience = time.monotonic() + 30
    while not is_in_page_cache(late.path) and time.monotonic() < patience:
        time.sleep(0.01)
    assert is_in_page_cache(late.path)


def read_status(name: str, task: Path = Path("/proc/self")) -> str:
    """Return a status field of this process, or of one of its threads."""
    lines = (task / "status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(name))


def test_decoder_threads_release_memory_of_large_files(require_decoder, tmp_path):
    large = FileBatch(tmp_path, b"")
    os.truncate(large.path, 40 << 20)
    large.rows = np.repeat(large.rows, 8)
    with closing(NativeDecoder(4)) as decoder:
        before = int(read_status("RssAnon"))
        assert Status.DONE not in large.fill(decoder)
        # kB; two threads that kept their memory would use 80 MB
        assert int(read_status("RssAnon")) - before < 60 << 10


def test_changed_image_fails_its_checksum(decoder, jpeg):
    crc = zlib.crc32(jpeg)
    batch = Batch([jpeg, jpeg], 32, box=BOXES[:2], checked=True, crc=[crc, crc ^ 1])
    assert batch.fill(decoder).tolist() == [Status.DONE, Status.ALTERED]


def test_half_size_level_has_its_own_crc(decoder):
    full = np.full((40, 40, 3), 50, np.uint8)
    half = np.full((20, 20, 3), 90, np.uint8)
    batch = Batch([full] * 2, 10, raw=True, size=40, box=(0, 0, 40, 40))
    small = batch.rows["small"]
    small["data"], small["length"], small["size"], small["raw"] = half.ctypes.data, half.size, 20, 1
    small["crc"] = zlib.crc32(half), zlib.crc32(full)
    assert batch.fill(decoder).tolist() == [Status.DONE, Status.ALTERED]
    assert (batch.pixels[0] == 90).all()


def test_raw_pixels_are_never_read_past_end(decoder, tmp_path):
    size = 64 * 64 * 3
    page = mmap.PAGESIZE
    assert size % page == 0
    with (tmp_path / "pixels").open("w+b") as file:
        file.write(bytes([50]) * (size + page))
        file.flush()
        mapped = np.memmap(file, np.uint8, "r", shape=(size + page,))
        file.truncate(size)  # reading the next page would fault
    image = mapped[:size].reshape(64, 64, 3)
    for side in (16, 64, 100):
        batch = Batch([image], side, raw=True, size=64, box=(0, 0, 64, 64))
        assert (batch.decode(decoder) == 50).all()


def test_raw_pixels_are_returned_unchanged(decoder):
    raw = np.asarray(make_photo())
    batch = Batch([raw], 60, geometry=BOX, box=(11, 13, 60, 60), size=raw.shape[:2], raw=True)
    assert np.array_equal(batch.decode(decoder)[0], raw[13:73, 11:71])


def test_closed_decoder_drops_pending_and_awaits_running_rows(require_decoder, jpeg):
    batch = Batch([jpeg] * 3000, 64, box=(0, 0, 150, 150))
    decoder = NativeDecoder(2)
    decoder.submit(batch.rows)
    decoder.close()
    decoder.close()
    assert set(batch.rows["status"].tolist()) <= {Status.DONE, Status.CANCELLED}
    assert batch.rows["status"][-1] == Status.CANCELLED
    before = batch.pixels.copy()
    time.sleep(0.05)
    assert np.array_equal(before, batch.pixels)
    with pytest.raises(RuntimeError, match="closed"):
        decoder.submit(batch.rows)


def test_decoder_wait_times_out_and_releases_the_gil(require_decoder):
    # Regular files cannot block a thread, so this waits for a batch that the only thread has not
    # reached.
    image = encode_image(make_photo(0, 600, 800), quality=95)
    ran = []
    with closing(NativeDecoder(1)) as decoder:
        batch = Batch([image] * 300, 224, box=(0, 0, 800, 600))
        ticket = decoder.submit(batch.rows)
        other = threading.Thread(target=lambda: ran.append(not decoder.wait(ticket, 0.0)))
        other.start()
        assert not decoder.wait(ticket, 0.02)
        other.join()
        assert ran == [True]


def test_decoder_in_forked_child_reports_missing_threads(decoder, jpeg):
    batch = Batch([jpeg], 32, box=BOXES[0])
    child = os.fork()
    if not child:
        try:
            decoder.submit(batch.rows)
        except RuntimeError as error:
            decoder.close()
            os._exit(0 if "is a fork of" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not batch.fill(decoder).any()


def test_decoder_threads_block_signals(decoder, jpeg):
    Batch([jpeg] * 20, 32, box=BOXES[0]).fill(decoder)  # working threads have their names
    tasks = [*Path("/proc/self/task").iterdir()]
    ours = [task for task in tasks if (task / "comm").read_text().strip() == "decode"]
    blocked = [int(read_status("SigBlk", task), 16) for task in ours]
    assert blocked
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        assert all(mask >> (number - 1) & 1 for mask in blocked)


def test_decoder_reports_the_thread_limit(require_decoder):
    child = os.fork()
    if not child:
        os.setuid(65534)  # root has no limits
        resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
        try:
            NativeDecoder(50)
        except OSError as error:
            os._exit(0 if "50 threads" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_decoder_submit_rejects_other_dtypes(decoder):
    with pytest.raises(AssertionError):
        decoder.submit(np.zeros(3))
