"""A rank that is stuck writes its stacks to its log."""

import subprocess
import sys
from pathlib import Path

from resnet_recipes.jobs.watchdog import beats

WATCHED = """
import os, signal, sys, time
from pathlib import Path
from resnet_recipes.run_folder.held import HeldFolder
from resnet_recipes.jobs.watchdog import Watchdog

def stuck_in_a_collective():
    time.sleep({seconds})

watchdog = Watchdog(HeldFolder(Path(sys.argv[1])), 3, stalled={stalled})
watchdog.beat(7, "evaluate")
{act}
stuck_in_a_collective()
"""


def stderr_of(folder: Path, seconds: float, stalled: float, act: str = "") -> str:
    """Return what a watched process wrote to its log."""
    script = WATCHED.format(seconds=seconds, stalled=stalled, act=act)
    return subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=30
    ).stderr


def test_a_beat_can_be_read_by_another_process(tmp_path):
    stderr_of(tmp_path, 0, 60)
    (beat,) = beats(tmp_path)
    assert (beat.rank, beat.step, beat.count, beat.phase) == (3, 7, 2, "evaluate")


def test_the_last_beat_counts(tmp_path):
    stderr_of(
        tmp_path,
        0,
        60,
        "for i in range(1000): watchdog.beat(i, 'a phase with a name that is too long')",
    )
    (beat,) = beats(tmp_path)
    assert (beat.step, beat.phase) == (999, "a phase with a n")


def test_a_stalled_process_dumps_its_stacks_and_lives_on(tmp_path):
    log = stderr_of(tmp_path, 0.3, 0.1)
    assert "Timeout" in log
    assert "stuck_in_a_collective" in log


def test_a_process_that_gets_on_dumps_nothing(tmp_path):
    assert (
        stderr_of(
            tmp_path, 0, 0.4, "for i in range(30): time.sleep(0.02); watchdog.beat(i, 'train')"
        )
        == ""
    )


def test_sigusr2_and_crashes_show_the_stacks(tmp_path):
    assert "stuck_in_a_collective" not in (
        asked := stderr_of(tmp_path, 0, 60, "os.kill(os.getpid(), signal.SIGUSR2)")
    )
    assert "most recent call first" in asked
    assert "Segmentation fault" in stderr_of(
        tmp_path, 0, 60, "os.kill(os.getpid(), signal.SIGSEGV)"
    )
