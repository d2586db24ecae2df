"""The pipeline makes batches in order from any storage, with threads, processes or neither.

A run that resumes within an epoch decodes only the rest of the epoch.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from resnet_recipes import data
from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data import loading
from resnet_recipes.data.base import Batching, DataConfig, DataFacts
from resnet_recipes.data.crop import sample_uniforms
from resnet_recipes.data.images import NativeImages
from resnet_recipes.data.images.python import TrainImages
from resnet_recipes.data.loading import Pipeline
from resnet_recipes.data.loading.slots import Capacity
from resnet_recipes.data.loading.storage import Rows, UnreadableError
from resnet_recipes.data.order import BatchOrder
from tests.data.loaders import copy_batches, make_small_config, requires_decoder
from tests.shared.checks import is_identical


class Grays:
    """Forty images, each with a single gray level that depends on its key.

    Images in `bad` cannot be read.
    """

    def __init__(self, in_threads: bool, bad: tuple[int, ...] = ()):
        self.labels = np.arange(40) // 4
        self.in_threads = in_threads
        self.bad = bad

    def fill(self, rows: Rows) -> None:
        for index in rows.indices.tolist():
            if index in self.bad:
                raise UnreadableError(index, TrainingError(f"{self.path(index)} is bad"))
        rows.pixels[:] = (
            256
            * sample_uniforms(1, rows.crop_epoch, rows.indices, 1, rows.copies)[:, :, None, None]
        )

    def path(self, index: int) -> str:
        return f"image {index}"


def iterate_orders(count: int) -> Iterator[BatchOrder]:
    """Yield batches of 7 images of changing sizes; every image occurs twice."""
    for step in range(count):
        positions = np.arange(7 * step, 7 * step + 7)
        yield BatchOrder(step // 4, positions // 2 % 40, positions % 2, 4 + step % 3)


def make_pipeline(
    workers: int, prefetch: int = 1, in_threads: bool = True, bad: tuple[int, ...] = ()
) -> Pipeline:
    capacity = Capacity(workers, prefetch, rows=7, image_size=6)
    return Pipeline(Grays(in_threads, bad), capacity, skip_bad=bool(bad))


def run_pipeline(
    workers: int, in_threads: bool = True, bad: tuple[int, ...] = (), count: int = 12
) -> list[tuple[np.ndarray, ...]]:
    with closing(make_pipeline(workers, 2, in_threads, bad)) as pipeline:
        return copy_batches(pipeline.read(iterate_orders(count)), count)


@pytest.mark.parametrize("bad", [(), (0, 3, 4, 39)])
def test_batches_are_equal_from_threads_processes_and_caller(bad):
    expected = run_pipeline(0, bad=bad)
    assert [pixels.shape for pixels, _ in expected[:3]] == [
        (7, 3, side, side) for side in (4, 5, 6)
    ]
    assert is_identical(run_pipeline(1, bad=bad), expected)
    assert is_identical(run_pipeline(3, bad=bad), expected)
    assert is_identical(run_pipeline(2, in_threads=False, bad=bad), expected)


def test_storage_receives_copy_of_repeated_image():
    pixels, labels = run_pipeline(0, count=1)[0]
    assert labels.tolist() == [0, 0, 0, 0, 0, 0, 0]
    assert len(set(pixels[:, 0, 0, 0])) == 7


def test_skipped_image_is_replaced_by_the_next():
    pipeline = make_pipeline(2, bad=(3, 4))
    batches = list(pipeline.read([BatchOrder(0, np.array([2, 3, 5]), np.zeros(3, np.int64), 4)]))
    assert batches[0].labels.tolist() == [0, 1, 1]
    assert (batches[0].pixels[1] == batches[0].pixels[2]).all()
    assert pipeline.skipped == ("image 3", "image 4")
    pipeline.close()


def test_error_counts_bad_images_in_sequence():
    with pytest.raises(TrainingError, match="image 0 and the 39 images after it"):
        run_pipeline(2, bad=tuple(range(40)))


def test_new_iteration_ends_the_earlier_one():
    pipeline = make_pipeline(2, prefetch=3)
    first = pipeline.read(iterate_orders(99))
    next(first)
    assert is_identical(copy_batches(pipeline.read(iterate_orders(5)), 5), run_pipeline(0, count=5))
    with pytest.raises(RuntimeError, match="ended when the loader was closed"):
        next(first)
    pipeline.close()
    pipeline.close()


def test_prefetch_limits_batches_read_ahead():
    storage = Grays(True)
    filled = []
    fill = storage.fill
    storage.fill = lambda rows: (filled.append(int(rows.indices[0])), fill(rows))
    pipeline = Pipeline(storage, Capacity(1, prefetch=3, rows=7, image_size=6))
    batches = pipeline.read(iterate_orders(99))
    batch = next(batches)
    before = batch.pixels.clone()
    patience = time.monotonic() + 10
    while len(filled) < 1 + 3 and time.monotonic() < patience:
        time.sleep(0.01)
    time.sleep(0.1)  # time for another batch, which must not be made
    assert len(filled) == 1 + 3
    assert (batch.pixels == before).all()
    pipeline.close()


def test_batch_memory_is_independent_of_workers():
    capacities = [Capacity(workers, prefetch=3, rows=7, image_size=60) for workers in (1, 64)]
    assert capacities[0].memory == capacities[1].memory
    assert capacities[0].memory >= 4 * 7 * 60 * 60 * 3


def test_loader_times_out_on_unresponsive_storage(monkeypatch):
    monkeypatch.setattr(loading, "STUCK_SECONDS", 0.1)
    storage = Grays(True)
    gate = threading.Event()
    storage.fill = lambda rows: gate.wait()
    pipeline = Pipeline(storage, Capacity(1, prefetch=1, rows=7, image_size=6))
    with pytest.raises(
        TrainingError,
        match=r"no image was read for 0\.1 s; the loader is stuck at image 0, image 0, "
        r"image 1, image 1",
    ):
        next(pipeline.read(iterate_orders(1)))
    pipeline.close()  # does not wait
    gate.set()


class FailedCudaCall:
    """The result of cudaHostRegister if memory cannot be locked."""

    value = 2


def test_unpinnable_memory_is_used_with_a_note(monkeypatch):
    cudart = type("Cudart", (), {"cudaHostRegister": staticmethod(lambda *_: FailedCudaCall())})
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.cudart", lambda: cudart)
    pipeline = make_pipeline(1)
    assert "cannot be pinned (CUDA error 2)" in pipeline.notes[0]
    assert next(pipeline.read(iterate_orders(1))).pixels.shape == (7, 3, 4, 4)
    pipeline.close()


# an epoch has 3 steps: the run stops in the second epoch, and ends in the third
STOP, STEPS, PREFETCH = 4, 8, 2


class LoaderCase(NamedTuple):
    """A backend and format for training images."""

    config: DataConfig
    facts: DataFacts
    ahead: int  # batches that are read ahead
    decoded: Counter  # decoded (epoch, index, copy) in this process

    def run(self, batching: Batching, first: int, count: int) -> Counter:
        """Take batches from a step on, close the loader, and return the decoded images."""
        self.decoded.clear()
        with closing(data.open_train(self.config, self.facts, batching)) as loader:
            assert sum(1 for _ in itertools.islice(loader.batches(first), count)) == count
        return self.decoded.copy()

    def decode_by_step(self, batching: Batching, count: int) -> list[Counter]:
        """Return the images decoded in each step of an uninterrupted run without look-ahead."""
        steps = []
        self.decoded.clear()
        with closing(
            data.open_train(replace(self.config, workers=0), self.facts, batching)
        ) as loader:
            for _ in itertools.islice(loader.batches(), count):
                steps.append(self.decoded.copy())
                self.decoded.clear()
        return steps


def wrap_fill(fill: Callable, decoded: Counter) -> Callable:
    """Return the `fill` of a storage, wrapped to count its rows."""

    def record_fill(self: object, rows: Rows) -> None:
        decoded.update(
            (rows.crop_epoch, int(index), int(copy))
            for index, copy in zip(rows.indices, rows.copies, strict=True)
        )
        fill(self, rows)

    return record_fill


@pytest.fixture(
    params=[
        pytest.param("files", marks=requires_decoder),
        pytest.param("beton", marks=requires_decoder),
        "python",
    ]
)
def loader_case(
    request: pytest.FixtureRequest, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> LoaderCase:
    """Class folders and .beton files with the native decoder, and class folders in Python."""
    decoded = Counter()
    kind = request.param
    for storage in (NativeImages, TrainImages):
        monkeypatch.setattr(storage, "fill", wrap_fill(storage.fill, decoded))
    if kind == "python":
        request.getfixturevalue("without_decoder")
    in_threads = kind != "python"  # images decoded by processes could not be counted here
    root, backend = image_folder, "torchvision"
    if kind == "beton":
        root = request.getfixturevalue("betons")
        backend = "ffcv"
    config = make_small_config(root, backend, workers=2 * in_threads, prefetch=PREFETCH)
    return LoaderCase(config, data.survey_images(config), PREFETCH * in_threads, decoded)


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize(("rank", "world"), [(0, 1), (0, 2), (1, 2)])
def test_run_decodes_its_steps_once_plus_prefetch(loader_case, rank, world, repeats):
    loader_case = loader_case._replace(config=replace(loader_case.config, repeats=repeats))
    batching = Batching(rank, world, global_size=12, eval_size=4, seed=5, groups=world)
    steps = loader_case.decode_by_step(batching, STEPS + PREFETCH)
    assert [step.total() for step in steps] == [12 // world] * len(steps)
    # batches without a stop, before a stop, and after it
    for first, end in ((0, STEPS), (0, STOP), (STOP, STEPS)):
        decoded = loader_case.run(batching, first, end - first)
        needed = sum(steps[first:end], Counter())
        assert needed <= decoded <= needed + sum(steps[end : end + loader_case.ahead], Counter())
