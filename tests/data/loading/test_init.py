"""The training loader: a run that goes on in mid-epoch decodes only what is left of the epoch."""

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from resnet_recipes import data
from resnet_recipes.data.base import DataConfig, DataFacts, Share
from resnet_recipes.data.images import NativeImages
from resnet_recipes.data.images.python import TrainImages
from resnet_recipes.data.loading.storage import Rows
from tests.data.conftest import built, small

# of 3 steps an epoch: the run stops within the second, and ends in the third
STOP, STEPS, PREFETCH = 4, 8, 2


class Case(NamedTuple):
    """One way to read training images."""

    config: DataConfig
    facts: DataFacts
    ahead: int  # batches that are read before they are asked for
    decoded: Counter  # of (epoch, index, copy), as this process decodes them

    def run(self, share: Share, first: int, count: int) -> Counter:
        """Take batches from a step on and close the loader; return what was decoded by then."""
        self.decoded.clear()
        with closing(data.open_train(self.config, self.facts, share)) as loader:
            assert sum(1 for _ in itertools.islice(loader.batches(first), count)) == count
        return self.decoded.copy()

    def by_step(self, share: Share, count: int) -> list[Counter]:
        """Return what each step of an uninterrupted run decodes where nothing is read ahead."""
        found = []
        self.decoded.clear()
        with closing(data.open_train(replace(self.config, workers=0), self.facts, share)) as loader:
            for _ in itertools.islice(loader.batches(), count):
                found.append(self.decoded.copy())
                self.decoded.clear()
        return found


def counting(fill: Callable, decoded: Counter) -> Callable:
    """Return a storage's `fill` that also counts its rows."""

    def counted(self: object, rows: Rows) -> None:
        decoded.update(
            (rows.epoch, int(index), int(copy))
            for index, copy in zip(rows.indices, rows.copies, strict=True)
        )
        fill(self, rows)

    return counted


@pytest.fixture(
    params=[pytest.param("files", marks=built), pytest.param("beton", marks=built), "python"]
)
def case(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Class folders and .beton files by the engine, and class folders by Python."""
    decoded, kind = Counter(), request.param
    for storage in (NativeImages, TrainImages):
        monkeypatch.setattr(storage, "fill", counting(storage.fill, decoded))
    if kind == "python":
        request.getfixturevalue("without_engine")
    in_threads = kind != "python"  # what processes decode could not be counted here
    root, backend = folder, "torchvision"
    if kind == "beton":
        root, backend = request.getfixturevalue("betons"), "ffcv"
    config = small(root, backend, workers=2 * in_threads, prefetch=PREFETCH)
    return Case(config, data.measure(config), PREFETCH * in_threads, decoded)


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize(("rank", "world"), [(0, 1), (0, 2), (1, 2)])
def test_a_run_decodes_its_own_steps_once_and_beyond_them_at_most_what_it_has_read_ahead(
    case, rank, world, repeats
):
    case = case._replace(config=replace(case.config, repeats=repeats))
    share = Share(rank, world, global_size=12, eval_size=4, seed=5, groups=world)
    steps = case.by_step(share, STEPS + PREFETCH)
    assert [step.total() for step in steps] == [12 // world] * len(steps)
    # without a stop, before it, and after it
    for first, end in ((0, STEPS), (0, STOP), (STOP, STEPS)):
        decoded, needed = case.run(share, first, end - first), sum(steps[first:end], Counter())
        assert needed <= decoded <= needed + sum(steps[end : end + case.ahead], Counter())
