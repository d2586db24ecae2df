"""Heartbeats: the stacks of a stuck rank in its log, and the monitor of all ranks."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resnet_recipes.jobs.ranks import heartbeat
from resnet_recipes.jobs.ranks.heartbeat import Beat, RankMonitor, read_beats
from resnet_recipes.run_folder.ending import Ending, write_ending

WATCHED = """
import os, signal, sys, time
from pathlib import Path
from resnet_recipes.run_folder.lock import HeldFolder
from resnet_recipes.jobs.ranks.heartbeat import HeartbeatWriter

def stuck_in_a_collective():
    time.sleep({seconds})

heartbeat = HeartbeatWriter(HeldFolder(Path(sys.argv[1])), 3, stall_seconds={stall_seconds})
heartbeat.beat(7, "evaluate")
{act}
stuck_in_a_collective()
"""


def read_log(folder: Path, seconds: float, stall_seconds: float, act: str = "") -> str:
    script = WATCHED.format(seconds=seconds, stall_seconds=stall_seconds, act=act)
    return subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=30
    ).stderr


def test_last_beat_is_readable_by_another_process(tmp_path):
    read_log(tmp_path, 0, 60, "for i in range(1000): heartbeat.beat(i, 'a phase with a long name')")
    (beat,) = read_beats(tmp_path)
    assert (beat.rank, beat.step, beat.beats, beat.phase) == (3, 999, 1002, "a phase with a l")


def test_beat_on_full_disk_is_reported_once(tmp_path):
    (tmp_path / "heartbeat").mkdir()
    (tmp_path / "heartbeat/rank3").symlink_to("/dev/full")
    log = read_log(tmp_path, 0, 60, "heartbeat.beat(8, 'train')\nprint('done', file=sys.stderr)")
    assert log == "the heartbeat cannot be written: No space left on device\ndone\n"


def test_monitor_survives_an_unresponsive_disk(tmp_path, monkeypatch):
    read_log(tmp_path, 0, 60)
    write_ending(tmp_path / "endings/rank3.json", Ending(0, 3))
    assert len(read_beats(tmp_path)) == 1

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, fail)
    assert (read_beats(tmp_path), RankMonitor(tmp_path).read_endings()) == ([], [])


def test_stalled_process_dumps_stacks_and_continues(tmp_path):
    log = read_log(tmp_path, 0.3, 0.1)
    assert "Timeout" in log
    assert "stuck_in_a_collective" in log


def test_heartbeat_of_progressing_process_dumps_no_stacks(tmp_path):
    act = "for i in range(35): time.sleep(0.1); heartbeat.beat(i, 'train')"
    assert read_log(tmp_path, 0, 3, act) == ""


def test_heartbeat_dumps_stacks_on_sigusr2_and_crashes(tmp_path):
    requested, crashed = (
        read_log(tmp_path, 0, 60, f"signal.raise_signal(signal.{name})")
        for name in ("SIGUSR2", "SIGSEGV")
    )
    assert "stuck_in_a_collective" not in requested
    assert "most recent call first" in requested
    assert "Segmentation fault" in crashed


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> list[Beat]:
    """The last heartbeats of the ranks, set by the test."""
    recorded: list[Beat] = []
    monkeypatch.setattr(heartbeat, "read_beats", lambda _: list(recorded))
    return recorded


@pytest.mark.parametrize("clock", [0.0, 1e9])
def test_monitor_ignores_endings_present_at_start(clock, tmp_path):
    def end(rank: int, **facts: object) -> None:
        write_ending(tmp_path / f"endings/rank{rank}.json", Ending(1, rank, **facts))

    end(0, time=5e8, pid=1)
    end(1, time=5e8, pid=2)
    monitor = RankMonitor(tmp_path)
    assert monitor.read_endings() == []
    end(1, time=clock, pid=3)
    assert [ending.pid for ending in monitor.read_endings()] == [3]


def test_monitor_ignores_endings_of_earlier_attempts(tmp_path):
    monitor = RankMonitor(tmp_path)
    for rank, attempt in enumerate((0, 1, 1)):
        write_ending(tmp_path / f"endings/rank{rank}.json", Ending(1, rank, attempt=attempt))
    assert sorted(ending.rank for ending in monitor.read_endings()) == [1, 2]


def test_monitor_ignores_beats_present_at_start(beats, tmp_path):
    beats[:] = [Beat(0, 20, 30, 11, 1, "train", "a"), Beat(1, 20, 30, 12, 1, "train", "a")]
    monitor = RankMonitor(tmp_path)
    beats[0] = Beat(0, 0, 1, 13, 1, "start", "a")
    assert monitor.read_beats() == [beats[0]]


def test_stall_names_the_rank_that_lags(beats, tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monitor = RankMonitor(tmp_path)
    now += 600
    assert monitor.describe_stall() == ""  # no rank has started yet
    beats[:] = [Beat(0, 21, 30, 11, 1, "train", "a"), Beat(1, 20, 30, 12, 1, "evaluate", "b")]
    assert monitor.describe_stall() == ""
    now += 299
    assert monitor.describe_stall() == ""
    now += 301
    assert monitor.describe_stall() == (
        "no progress for 10 minutes; rank 1 is in 'evaluate' after 20 steps (process 12 on b)"
    )
    beats[1] = beats[1]._replace(beats=31)  # a batch of an evaluation
    assert monitor.describe_stall() == ""
