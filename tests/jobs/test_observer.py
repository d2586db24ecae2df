"""A launcher sees what its ranks write, whatever the clocks say."""

import time

import pytest

from resnet_recipes.jobs import watchdog
from resnet_recipes.jobs.observer import Observer
from resnet_recipes.jobs.watchdog import Beat
from resnet_recipes.run_folder.ending import Ending, write


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> list[Beat]:
    """The last beats of the ranks, as the test sets them."""
    found: list[Beat] = []
    monkeypatch.setattr(watchdog, "beats", lambda _: list(found))
    return found


@pytest.mark.parametrize("clock", [0.0, 1e9])
def test_only_endings_that_were_not_there_before_count_whatever_their_times(clock, tmp_path):
    def end(rank: int, **facts: object) -> None:
        write(tmp_path / "endings" / f"rank{rank}.json", Ending(1, rank, **facts))

    end(0, time=5e8, pid=1)
    end(1, time=5e8, pid=2)
    observer = Observer(tmp_path)
    assert observer.endings() == []
    end(1, time=clock, pid=3)
    assert [ending.pid for ending in observer.endings()] == [3]


def test_only_endings_of_the_last_attempt_count(tmp_path):
    observer = Observer(tmp_path)
    for rank, attempt in enumerate((0, 1, 1)):
        write(tmp_path / "endings" / f"rank{rank}.json", Ending(1, rank, attempt=attempt))
    assert sorted(ending.rank for ending in observer.endings()) == [1, 2]


def test_only_beats_that_were_not_there_before_count(beats, tmp_path):
    beats[:] = [Beat(0, 20, 30, 11, 1, "train", "a"), Beat(1, 20, 30, 12, 1, "train", "a")]
    observer = Observer(tmp_path)
    beats[0] = Beat(0, 0, 1, 13, 1, "start", "a")
    assert observer.beats() == [beats[0]]


def test_the_rank_that_lags_is_named_when_nothing_has_moved_for_a_while(
    beats, tmp_path, monkeypatch
):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    observer = Observer(tmp_path)
    now += 600
    assert observer.stall() == ""  # no rank has started yet
    beats[:] = [Beat(0, 21, 30, 11, 1, "train", "a"), Beat(1, 20, 30, 12, 1, "evaluate", "b")]
    assert observer.stall() == ""
    now += 299
    assert observer.stall() == ""
    now += 301
    assert observer.stall() == (
        "no progress for 10 minutes; rank 1 is behind: "
        "20 steps done, now in 'evaluate' (process 12 on b)"
    )
    beats[1] = beats[1]._replace(count=31)  # a batch of an evaluation
    assert observer.stall() == ""
