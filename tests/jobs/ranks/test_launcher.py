"""One command, one message, one exit code, and no remaining processes."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.jobs.ranks import group as group_module
from resnet_recipes.jobs.ranks import heartbeat
from resnet_recipes.jobs.ranks import launcher as launching
from resnet_recipes.jobs.ranks.group import Group
from resnet_recipes.jobs.ranks.launcher import start
from resnet_recipes.jobs.ranks.rank import LaunchFacts
from resnet_recipes.run_folder import LAUNCH
from resnet_recipes.run_folder.ending import Ending, read_ending
from resnet_recipes.run_folder.lock import LockedFolder, is_running
from tests.shared.sources import ROOT
from tests.shared.tables import parse_rows


@pytest.fixture(autouse=True)
def _start_stand_in_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the launcher start the stand-in, and wait less for a repeated signal."""
    monkeypatch.setattr(group_module, "RANK_MODULE", "stand_in")
    monkeypatch.setattr(launching, "ECHO_SECONDS", 0.1)
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{ROOT}")


class StandInRun:
    def __init__(
        self,
        folder: Path,
        behavior: str = "",
        ranks: int = 1,
        restarts: int = 0,
        then: Callable[[], object] | None = None,
    ):
        self.folder, self.messages = folder, []
        (folder / "behavior").write_text(behavior)
        if then is not None:
            threading.Thread(target=self._when_training, args=(then, ranks), daemon=True).start()
        self.ending: Ending = start(
            LockedFolder(folder), Group(ranks, max_restarts=restarts), self.messages.append
        )

    def _when_training(self, then: Callable[[], object], ranks: int) -> None:
        while sum(beat.step > 5 for beat in heartbeat.read_beats(self.folder)) < ranks:
            time.sleep(0.01)
        then()

    @property
    def message(self) -> str:
        return "\n".join(self.messages)

    def log(self, rank: int) -> str:
        return (self.folder / f"logs/rank{rank}.log").read_text()


def list_running(folder: Path) -> list[str]:
    """Return the other processes whose command line contains the folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and path.parent.name != str(os.getpid()):
            lines.append(line)
    return lines


def test_missing_endings_are_explained_by_full_disk(tmp_path, monkeypatch):
    write_text = atomic.write_text

    def fail(path: Path, text: str) -> None:
        if path.name == LAUNCH:
            return write_text(path, text)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("resnet_recipes.base.atomic.write_text", fail)
    (tmp_path / "endings").touch()  # not a folder, so no ending can be written
    ended = StandInRun(tmp_path, "wrong@0")
    assert "the run failed (No space left on device)" in ended.message
    assert "cannot be written to, so no rank could report how it ended" in ended.message
    assert "free some space, and resume" in ended.message


@pytest.mark.parametrize("verbose", [False, True])
def test_launcher_passes_facts_in_one_file(verbose, tmp_path):
    (tmp_path / "behavior").write_text("finish@0")
    assert start(LockedFolder(tmp_path), Group(), print, verbose).code == 0
    facts = LaunchFacts.read(tmp_path)
    assert (facts.is_ours, facts.shows_all_times) == (True, verbose)
    assert not Path(facts.store_path).exists()  # it was in a temporary folder


def test_launcher_rejects_folder_on_full_disk(tmp_path, monkeypatch):
    def fail(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("resnet_recipes.base.atomic.write_text", fail)
    with pytest.raises(NotReadyError, match="cannot be written to: No space left on device"):
        start(LockedFolder(tmp_path), Group(), print)


def test_finished_run_survives_a_failing_cleanup(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path))

    monkeypatch.setattr(os, "rmdir", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert StandInRun(tmp_path, "finish@0").ending.code == 0


def act_when_stuck(folder: Path, then: Callable[[], object]) -> Callable[[], None]:
    """Return a function that acts as soon as a rank of the run is stuck."""

    def wait() -> None:
        while not (folder / "stuck").exists():
            time.sleep(0.01)
        then()

    return wait


def make_sender(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def test_finished_run_has_exit_code_0(tmp_path):
    run = StandInRun(tmp_path, "finish@0")
    assert (run.ending.code, run.ending.step, run.messages) == (0, 20, [])
    assert read_ending(tmp_path / "exit.json") == run.ending


@pytest.mark.parametrize(
    ("behavior", "code", "parts"),
    parse_rows(
        """
wrong@0 | 1 | training failed; after 21 steps; data.on_bad_image=skip; train --resume
bug@0 | 1 | ZeroDivisionError; division by zero; rank0.log
not-ready@0 | 3 | error: data.root=/data is gone
kill@0 | 1 | SIGKILL; out of memory; after 21 steps
segv@0 | 1 | SIGSEGV
bus@0 | 1 | SIGBUS; --shm-size
exit@0 | 1 | SystemExit; 5
"""
    ),
)
def test_failure_is_one_message_with_its_cause(behavior, code, parts, tmp_path):
    run = StandInRun(tmp_path, behavior)
    assert run.ending.code == int(code)
    message = run.message
    assert all(part in message for part in parts.split("; ")), message
    assert "Traceback" not in message


def test_failed_measurement_is_not_resumable(tmp_path):
    (tmp_path / "task.json").write_text('{"task": "train"}')
    message = StandInRun(tmp_path, "bug@0").message
    assert "rank0.log" in message
    assert "resume" not in message


def test_log_has_traceback_and_stacks_of_a_crash(tmp_path):
    assert "Traceback" in StandInRun(tmp_path, "bug@0").log(0)
    assert "Segmentation fault" in StandInRun(tmp_path, "segv@0").log(0)


@pytest.mark.parametrize(
    ("name", "code"), [("SIGINT", 130), ("SIGTERM", 75), ("SIGUSR1", 75), ("SIGHUP", 75)]
)
def test_signal_saves_and_sets_the_exit_code(name, code, tmp_path):
    run = StandInRun(tmp_path, then=make_sender(signal.Signals[name]))
    assert run.ending.code == code
    assert (tmp_path / "saved0").exists()
    how = "; press Ctrl-C again to quit now" if name == "SIGINT" else ""  # stderr is no terminal
    assert run.messages == [f"saving a checkpoint{how}"]


@pytest.mark.parametrize(
    ("behavior", "name", "code"),
    [
        ("finish-at-signal@0", "SIGINT", 0),
        ("finish-at-signal@0", "SIGTERM", 0),
        ("preempted-at-signal@0", "SIGINT", 130),
    ],
)
def test_run_ending_at_its_signal_has_right_code(behavior, name, code, tmp_path):
    run = StandInRun(tmp_path, behavior, then=make_sender(signal.Signals[name]))
    assert run.ending.code == read_ending(tmp_path / "exit.json").code == code
    assert not (tmp_path / "saved0").exists()


def test_signal_after_the_last_rank_ended_changes_nothing(tmp_path, monkeypatch):
    def confirm(_: object) -> None:
        if (tmp_path / "endings").exists():  # endings of the ranks
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(launching.LockedFolder, "confirm", confirm)
    run = StandInRun(tmp_path, "finish@0")
    assert (run.ending.code, read_ending(tmp_path / "exit.json").code) == (0, 0)


def test_second_ctrl_c_stops_the_run_immediately(tmp_path):
    def interrupt_twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(launching.ECHO_SECONDS + 0.1)
        os.kill(os.getpid(), signal.SIGINT)

    run = StandInRun(tmp_path, "stuck@0", then=act_when_stuck(tmp_path, interrupt_twice))
    assert run.ending.code == 1
    assert "stopped at once" in run.message
    assert not list_running(tmp_path)


def test_signal_before_first_step_exits_with_75(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "STOP_SECONDS", 0.5)
    threading.Timer(0.02, make_sender(signal.SIGTERM)).start()
    run = StandInRun(tmp_path)
    assert run.ending.code == 75
    assert run.ending.message in ("stopped before the first step of this session", "SIGTERM")


def test_unresponsive_rank_is_killed_and_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "SAVE_SECONDS", -9.8)
    run = StandInRun(
        tmp_path, "stuck@0", then=act_when_stuck(tmp_path, make_sender(signal.SIGTERM))
    )
    assert (run.ending.code, run.ending.error) == (1, "timed out")
    assert not list_running(tmp_path)


def wait_for_processes(folder: Path) -> bool:
    """Wait for the processes of a run to end; return whether they do so in time."""
    deadline = time.monotonic() + 30
    while list_running(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not list_running(folder)


def test_loader_workers_of_dead_rank_are_killed(tmp_path):
    StandInRun(tmp_path, "leave-a-child@0")
    assert (tmp_path / "child").exists()
    assert wait_for_processes(tmp_path)


def launch_separately(folder: Path, ranks: int = 1) -> subprocess.Popen[str]:
    """Start a launcher in a separate process, and return it when its ranks train."""
    (folder / "behavior").write_text("")
    command = [sys.executable, "-m", "tests.shared.launcher", str(folder), str(ranks), "stand_in"]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while sum(beat.step > 5 for beat in heartbeat.read_beats(folder)) < ranks:
        time.sleep(0.01)
    return process


def test_streams_of_rank_0_reach_the_user(tmp_path):
    process = launch_separately(tmp_path)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert out == "output of 0\n"
    assert err.startswith("console of 0\n")
    assert (tmp_path / "logs/rank0.log").read_text().startswith("log of 0\n")
    assert process.returncode == 75


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_die_with_a_killed_launcher(tmp_path, ranks):
    process = launch_separately(tmp_path, ranks)
    process.kill()
    process.communicate(timeout=60)
    assert wait_for_processes(tmp_path)


@pytest.mark.slow
def test_failed_rank_is_named_and_stuck_rank_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "STOP_SECONDS", 0.5)
    run = StandInRun(tmp_path, "wrong@1 stuck@0", ranks=2)
    assert (run.ending.code, run.ending.rank) == (1, 1)
    message = run.message
    assert "rank 1 failed" in message
    assert "the other rank was stopped" in message
    assert run.log(1).startswith("output of 1\nlog of 1\n")
    assert (tmp_path / "stuck").exists()
    assert not (tmp_path / "endings/rank0.json").exists()  # the rank would sleep for a minute
    assert not list_running(tmp_path)


@pytest.mark.slow
def test_killed_rank_is_the_cause_not_its_peers(tmp_path):
    run = StandInRun(tmp_path, "kill@1 peer@0", ranks=2)
    assert (run.ending.rank, run.ending.error, run.ending.step) == (1, "SIGKILL", 21)
    assert not list_running(tmp_path)


@pytest.mark.slow
def test_ctrl_c_stops_all_ranks(tmp_path):
    run = StandInRun(tmp_path, ranks=2, then=make_sender(signal.SIGINT))
    assert run.ending.code == 130
    assert sorted(path.name for path in tmp_path.glob("saved*")) == ["saved0", "saved1"]
    assert not list_running(tmp_path)


@pytest.mark.slow
def test_group_restarts_after_failure_if_allowed(tmp_path):
    run = StandInRun(tmp_path, "fail-once@1 finish@0", ranks=2, restarts=1)
    assert (run.ending.code, run.ending.attempt) == (0, 1)
    message = "rank 1 failed; restarting from the last checkpoint (1 of 1)"
    assert run.messages == [message]


@pytest.mark.slow
def test_group_stops_restarting_at_limit_or_user_error(tmp_path):
    run = StandInRun(tmp_path, "kill@1 finish@0", ranks=2, restarts=1)
    assert (run.ending.code, run.ending.error) == (1, "SIGKILL")
    assert run.messages[0].endswith("restarting from the last checkpoint (1 of 1)")
    again = StandInRun(tmp_path, "not-ready@0", restarts=3)
    assert again.ending.code == 3
    assert len(again.messages) == 1


def test_launch_kills_only_at_late_second_ctrl_c(tmp_path, monkeypatch):
    launch = launching.Launch(tmp_path, Mock(), print)
    request = launching.Request
    for seconds, number, expected in (
        (10.0, signal.SIGINT, request.SAVE),
        (10.4, signal.SIGINT, request.SAVE),  # repeated by a wrapper
        (12.0, signal.SIGTERM, request.SAVE),  # Slurm sends several
        (14.0, signal.SIGINT, request.KILL),
    ):
        monkeypatch.setattr(launching, "ECHO_SECONDS", 0.5)
        monkeypatch.setattr(launching.time, "monotonic", lambda now=seconds: now)
        launch.receive(number)
        assert launch._request is expected


def test_ending_of_equal_ranks_names_lowest_rank(tmp_path):
    launch = launching.Launch(tmp_path, Mock(ranks=3), print)
    launch._monitor = Mock(read_endings=lambda: [Ending(0, rank) for rank in (2, 0, 1)])
    assert launch._make_ending(Mock(find_killed=lambda: None)).rank == 0


def test_ending_is_written_before_the_lock_is_released(tmp_path, monkeypatch):
    was_running, write = [], launching.ending.write_ending
    monkeypatch.setattr(
        launching.ending,
        "write_ending",
        lambda path, ending: was_running.append(is_running(tmp_path)) or write(path, ending),
    )
    StandInRun(tmp_path, "finish@0")
    assert was_running == [True]
