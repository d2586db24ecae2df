"""The stream: batches in order, and the time spent waiting for them."""

import itertools
import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from resnet_recipes.data import stream as streams
from resnet_recipes.data.base import RawBatch
from resnet_recipes.data.stream import Stream


class RepeatingLoader:
    def __init__(self, device: str = "cpu"):
        self.pixels = torch.zeros(8, 3, 64, 64, dtype=torch.uint8, pin_memory=device == "cuda")

    def batches(self, first_step: int = 0):
        """Yield batches whose pixels all equal the step."""
        for step in itertools.count(first_step):
            yield RawBatch(self.pixels.fill_(step), torch.full((8,), step))


def test_stream_yields_batches_in_order_from_first_step():
    stream = Stream(RepeatingLoader().batches(7), torch.device("cpu"))
    assert [int(batch.pixels[0, 0, 0, 0]) for batch in itertools.islice(stream, 4)] == [7, 8, 9, 10]


def test_stream_measures_only_waits_for_loader(monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def load_slowly() -> Iterator[RawBatch]:
        nonlocal now
        for batch in RepeatingLoader().batches():
            now += 3.0
            yield batch

    stream = Stream(load_slowly(), torch.device("cpu"))
    for _ in itertools.islice(stream, 5):
        now += 100.0
    assert stream.waited == 15.0


def test_batch_is_yielded_before_requesting_the_next():
    asked = []
    stream = Stream(
        (
            asked.append(step) or RawBatch(torch.zeros(1), torch.zeros(1))
            for step in itertools.count()
        ),
        torch.device("cpu"),
    )
    for step, _ in zip(range(3), stream, strict=False):
        assert asked == list(range(step + 1))


class RecordingStream:
    """A stand-in for a CUDA stream that records waits of the stream and of the host."""

    def __init__(self) -> None:
        self.recorded, self.waits, self.synchronized = 0, [], []

    def record_event(self) -> SimpleNamespace:
        self.recorded += 1
        number = self.recorded
        return SimpleNamespace(number=number, synchronize=lambda: self.synchronized.append(number))

    def wait_event(self, event: SimpleNamespace) -> None:
        self.waits.append(event.number)


@pytest.fixture
def recording_streams(monkeypatch: pytest.MonkeyPatch) -> tuple[RecordingStream, RecordingStream]:
    """Stand-ins for the copy stream and the stream of the steps."""
    side = RecordingStream()
    current = RecordingStream()
    monkeypatch.setattr(streams, "_get_side_stream", lambda _: side)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    return side, current


def make_device_batch() -> RawBatch:
    tensor = SimpleNamespace(record_stream=lambda _: None)
    tensor.to = lambda *_, **__: tensor
    return RawBatch(tensor, tensor)


def test_loader_fills_memory_only_after_its_last_copy(recording_streams):
    side, _ = recording_streams

    def make_batches() -> Iterator[RawBatch]:
        for copies in range(4):
            assert (side.recorded, side.synchronized) == (copies, [*range(1, copies + 1)])
            yield make_device_batch()

    assert len(list(Stream(make_batches(), torch.device("cuda")))) == 4


def test_copy_waits_for_event_of_two_batches_earlier(recording_streams):
    side, current = recording_streams
    assert len(list(Stream(iter([make_device_batch()] * 6), torch.device("cuda")))) == 6
    # current records an event before each batch; the copy of batch 4 waits for event 2
    assert side.waits == [1, 2, 3, 4]
    assert current.waits == [1, 2, 3, 4, 5, 6]  # waits for its copy


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_reused_memory_is_copied_before_overwriting():
    stream = Stream(RepeatingLoader("cuda").batches(), torch.device("cuda"))
    weights = torch.randn(4096, 4096, device="cuda")
    for step, batch in enumerate(itertools.islice(stream, 50)):
        weights = (weights @ weights).clamp(-1, 1)  # keeps the device behind the host
        assert batch.pixels.device.type == "cuda"
        assert torch.equal(batch.pixels, torch.full_like(batch.pixels, step))
