"""The native decoder reads images in memory that are present, absent, or freed meanwhile."""

import numpy as np
import pytest

from resnet_recipes.data.native import NativeDecoder
from resnet_recipes.data.native.rows import Status, make_blank_rows
from tests.data.loaders import requires_decoder

pytestmark = requires_decoder

HEIGHT, WIDTH, SIDE = 3000, 4000, 64


class Memory:
    """Memory for one image, and a row that crops it."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.source = rng.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
        self.kept = np.zeros(self.source.size + 64, np.uint8)
        self.counts = np.array([0, self.kept.size, 0], np.uint64)
        self.entry = np.zeros(1, np.uint64)
        self.pixels = np.zeros((SIDE, SIDE, 3), np.uint8)

    def make_row(self) -> np.ndarray:
        row = make_blank_rows(1)
        row["data"], row["length"] = self.source.ctypes.data, self.source.size
        row["size"] = self.source.shape[:2]
        row["raw"] = True
        row["longest"] = WIDTH
        row["output_size"] = SIDE
        row["box"] = (0, 0, WIDTH, HEIGHT)
        row["pixels"], row["kept"] = self.pixels.ctypes.data, self.kept.ctypes.data
        row["memory"], row["entry"] = self.counts.ctypes.data, self.entry.ctypes.data
        return row

    def read(self) -> np.ndarray:
        NativeDecoder(1).fill(self.make_row(), np.zeros(1, bool))
        return self.pixels.copy()


@pytest.fixture
def memory() -> Memory:
    reading = Memory()
    reading.read()
    assert reading.entry[0] not in (0, 2**64 - 1)
    return reading


def test_image_in_memory_is_not_read_again(memory):
    expected = memory.pixels.copy()
    memory.source[:] = 0
    assert np.array_equal(memory.read(), expected)


def test_image_beyond_capacity_is_read_again(memory):
    expected = memory.pixels.copy()
    memory.counts[1] -= 65  # smaller than the image
    memory.kept[:] = 0
    assert np.array_equal(memory.read(), expected)
    assert not memory.kept.any()


def test_image_freed_during_read_is_read_again(memory):
    expected = memory.pixels.copy()
    row = memory.make_row()
    decoder = NativeDecoder(1)
    ticket = decoder.submit(row)
    while row["status"][0] == Status.WAITING:
        pass  # waits until a thread has started
    memory.counts[1] = 0
    memory.kept[-memory.kept.size // 2 :] = 0
    assert decoder.wait(ticket, 60.0)
    assert row["status"][0] == Status.DONE
    assert np.array_equal(memory.pixels, expected)
