"""The processes of a sweep: their number, their failures, and runs of other sweeps."""

import os
import signal
import sys
from contextlib import ExitStack
from typing import ClassVar

import pytest

from resnet_recipes.jobs import sweep
from resnet_recipes.jobs.sweep import Sweep, make_slots
from resnet_recipes.run_folder.lock import LockedFolder
from tests.shared.run_folders import create_run_folder

RUNS = {name: ["recipe=mild", f"seed={seed}"] for seed, name in enumerate("abc", 1)}


class StandIn:
    """A process that ends at its third poll, with the exit code that a test sets for its run."""

    codes: ClassVar[dict[str, int]] = {}
    commands: ClassVar[list[list[str]]] = []
    outputs: ClassVar[list[int | None]] = []
    most, alive = 0, 0

    def __init__(self, command, stdout=None, **_):
        self.commands.append(command)
        self.outputs.append(stdout)
        self.returncode, self._polls = None, 0
        self._name = next(
            argument for argument in command if argument.startswith("run=")
        ).removeprefix("run=")
        StandIn.alive += 1
        StandIn.most = max(StandIn.most, StandIn.alive)

    def poll(self):
        self._polls += 1
        if self._polls == 3:
            StandIn.alive -= 1
            self.returncode = self.codes.get(self._name, 0)
        return self.returncode


@pytest.fixture
def stand_in_runs(monkeypatch):
    """Do not train, and do not wait."""
    monkeypatch.setattr(sweep.subprocess, "Popen", StandIn)
    monkeypatch.setattr(sweep.time, "sleep", lambda _: None)
    StandIn.codes, StandIn.commands, StandIn.outputs = {}, [], []
    StandIn.most, StandIn.alive = 0, 0
    return StandIn


def train_sweep(root, parallel=1, parents=None):
    """Train the runs a, b and c; return the exit code and the lines that were shown."""
    messages = []
    return Sweep(root, RUNS, messages.append, [{}] * parallel, parents).train(), messages


def test_sweep_runs_are_repeatable_commands(stand_in_runs, tmp_path):
    code, output = train_sweep(tmp_path)
    assert code == 0
    assert [" ".join(command[1:]) for command in stand_in_runs.commands] == [
        f"-m resnet_recipes recipe=mild seed={seed} run={name} --resume auto --no-plan"
        for seed, name in enumerate("abc", 1)
    ]
    assert output[-1] == f"finished runs: 3 of 3, in {tmp_path}"
    assert stand_in_runs.most == 1


def test_sweep_prints_one_line_for_each_finished_run(stand_in_runs, tmp_path):
    create_run_folder(tmp_path, "a", state="stopped")
    assert train_sweep(tmp_path)[1].count("[1 of 3] a: top-1 70.00% in 4:00 of training") == 1
    assert stand_in_runs.outputs == [sweep.subprocess.DEVNULL] * 3


def test_verbose_sweep_prints_the_summaries(stand_in_runs, tmp_path):
    Sweep(tmp_path, {"a": ["recipe=mild", "--verbose"]}, print, [{}]).train()
    assert stand_in_runs.outputs == [None]


def test_sweep_trains_at_most_parallel_runs(stand_in_runs, tmp_path):
    assert train_sweep(tmp_path, parallel=2)[0] == 0
    assert (stand_in_runs.most, len(stand_in_runs.commands)) == (2, 3)
    assert not list(tmp_path.glob("[abc]*.log"))  # `report runs/a*` gets only runs
    assert len(list(tmp_path.glob("logs/*.log"))) == 3


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_sweep_appends_logs_only_to_regular_files(kind, stand_in_runs, tmp_path):
    other = tmp_path / "other"
    log = tmp_path / "logs/b.log"
    log.parent.mkdir()
    other.write_text("mine\n")
    log.symlink_to(other) if kind == "link" else os.mkfifo(log)
    code, output = train_sweep(tmp_path, parallel=2)
    assert (code, len(stand_in_runs.commands)) == (1, 2)
    assert any(f"{log} cannot be written" in text for text in output)
    assert other.read_text() == "mine\n"


def test_sweep_skips_finished_runs(stand_in_runs, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/summary.json").write_text("{}")
    assert train_sweep(tmp_path)[0] == 0
    assert [command[5] for command in stand_in_runs.commands] == ["run=a", "run=c"]


def test_sweep_continues_after_a_failed_run(stand_in_runs, tmp_path):
    stand_in_runs.codes = {"a": 3}
    code, output = train_sweep(tmp_path)
    assert (code, len(stand_in_runs.commands)) == (1, 3)
    assert output[-2:] == [
        f"finished runs: 2 of 3, in {tmp_path}",
        "  failed with exit code 3: a",
    ]


@pytest.mark.parametrize("code", [2, 3])
def test_sweep_retries_run_that_another_sweep_was_creating(code, stand_in_runs, tmp_path):
    stand_in_runs.codes = {"b": code}
    (tmp_path / "b").mkdir()  # another sweep has just created it and not locked it yet
    ended, _ = train_sweep(tmp_path)
    names = [command[5] for command in stand_in_runs.commands]
    assert (ended, names) == (1, ["run=a", "run=b", "run=c", "run=b"])


@pytest.mark.parametrize("code", [1, 137])
def test_sweep_does_not_retry_a_failed_run(code, stand_in_runs, tmp_path):
    stand_in_runs.codes = {"b": code}
    (tmp_path / "b").mkdir()
    assert (train_sweep(tmp_path)[0], len(stand_in_runs.commands)) == (1, 3)


def test_killed_run_has_shell_exit_code(stand_in_runs, tmp_path):
    stand_in_runs.codes = {"b": -signal.SIGKILL}
    code, output = train_sweep(tmp_path)
    assert (code, output[-1]) == (1, "  failed with exit code 137: b")


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_finished", [True, False])
def test_sweep_waits_for_runs_of_another_sweep(
    is_first, is_finished, stand_in_runs, tmp_path, monkeypatch
):
    other = ExitStack()
    pauses = iter(range(20))

    def pause(_):
        if (now := next(pauses)) == (0 if is_first else 1):  # before or after our start
            (tmp_path / "b").mkdir()
            other.enter_context(LockedFolder(tmp_path / "b"))
            stand_in_runs.codes = {"b": 3}
        if now == 15:
            other.close()
            stand_in_runs.codes = {}
            if is_finished:
                (tmp_path / "b/summary.json").write_text("{}")

    monkeypatch.setattr(sweep.time, "sleep", pause)
    code, output = train_sweep(tmp_path, parallel=1 if is_first else 2)
    assert "[2 of 3] b: another command is training it" in output
    assert ("[2 of 3] b: already finished" in output) == is_finished
    assert (code, output[-1]) == (0, f"finished runs: 3 of 3, in {tmp_path}")
    ours = [command[5] for command in stand_in_runs.commands].count("run=b")
    assert ours == (not is_first) + (not is_finished)


PARENTS = {"a": ("b", 5), "b": ("c", 3)}


@pytest.mark.parametrize("is_saved", [True, False])
def test_sweep_starts_run_once_stable_phase_is_saved(is_saved, stand_in_runs, tmp_path):
    if is_saved:
        (tmp_path / "b/checkpoints").mkdir(parents=True)
        (tmp_path / "b/checkpoints/step-00000005.json").touch()
    assert train_sweep(tmp_path, 3, PARENTS)[0] == 0
    ends = [command[5:7] for command in stand_in_runs.commands]
    a = ["run.extends=b", "run=a"]
    b = ["run.extends=c", "run=b"]
    c = ["run=c", "--resume"]
    assert ends == ([a, c, b] if is_saved else [c, b, a])
    assert stand_in_runs.most == 1 + is_saved


def test_sweep_fails_run_whose_extended_run_failed(stand_in_runs, tmp_path):
    stand_in_runs.codes = {"b": 3}
    code, output = train_sweep(tmp_path, 3, PARENTS)
    assert (code, len(stand_in_runs.commands)) == (1, 2)
    assert "[1 of 3] a: needs the stable phase of b" in output
    assert output[-1] == "  failed with exit code 3: a"


@pytest.mark.parametrize("code", [75, 130])
def test_run_stopped_from_outside_ends_the_sweep(stand_in_runs, tmp_path, code):
    stand_in_runs.codes = {"b": code}
    assert train_sweep(tmp_path)[0] == code
    assert len(stand_in_runs.commands) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_reaches_every_run_and_restores_handlers(number, tmp_path, monkeypatch):
    before = signal.getsignal(number)
    real = sweep.subprocess.Popen
    children = []
    script = (
        f"import sys, signal, time; signal.signal({int(number)}, lambda *_: sys.exit(75)); "
        "print(flush=True); time.sleep(60)"
    )

    def start_child(command, **_):
        children.append(real([sys.executable, "-c", script], stdout=sweep.subprocess.PIPE))
        children[-1].stdout.readline()
        return children[-1]

    def send_signal(_):
        if signal.getsignal(number) is not before:
            os.kill(os.getpid(), number)
        monkeypatch.setattr(sweep.time, "sleep", pause)

    pause = sweep.time.sleep
    monkeypatch.setattr(sweep.subprocess, "Popen", start_child)
    monkeypatch.setattr(sweep.time, "sleep", send_signal)
    assert train_sweep(tmp_path, parallel=2)[0] == 75
    assert [child.returncode for child in children] == [75, 75]
    assert signal.getsignal(number) is before


def test_make_slots_assigns_a_gpu_or_cores(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert make_slots(1, 8, 64) == [{}]
    assert make_slots(2, 8, 64) == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    assert make_slots(2, 0, 9) == [{"OMP_NUM_THREADS": "4"}] * 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3")
    assert make_slots(2, 2, 9) == [{"CUDA_VISIBLE_DEVICES": "5"}, {"CUDA_VISIBLE_DEVICES": "3"}]
