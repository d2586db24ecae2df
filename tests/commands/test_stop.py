"""`resnet-recipes stop` and `runs rm` affect only the named run."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resnet_recipes.base.processes import die_with_parent
from resnet_recipes.commands import stop
from resnet_recipes.run_folder import EXIT, LOCK, STOP, SUMMARY
from resnet_recipes.run_folder.ending import Ending, read_ending, write_ending
from resnet_recipes.run_folder.lock import is_running
from tests.shared.run_folders import create_run_folder

#: A run that ends on request, and copies the reason.
RUN_PROGRAM = """
import pathlib, signal, sys
from resnet_recipes.run_folder.lock import LockedFolder
folder = pathlib.Path(sys.argv[1])
def leave(*_):
    (folder / "seen.txt").write_text((folder / "stop.txt").read_text())
    sys.exit(75)
signal.signal(signal.SIGTERM, leave)
with LockedFolder(folder):
    signal.pause()
"""


@pytest.fixture
def live_run(tmp_path, request):
    """A run that continues, ./runs/first, and its process, which first calls the parameter."""
    folder = create_run_folder(tmp_path / "runs", "first")
    command = [sys.executable, "-c", RUN_PROGRAM, str(folder)]
    process = subprocess.Popen(command, preexec_fn=getattr(request, "param", None))
    while not (is_running(folder) and (folder / LOCK).read_text()):  # contains the owner
        time.sleep(0.01)
    yield folder, process
    process.kill()
    process.wait()


def test_stop_sends_the_signal_of_a_scheduler(live_run, run_command):
    folder, process = live_run
    out = run_command("resnet-recipes stop first").out
    assert out == "stopped\nresume: resnet-train --resume runs/first\n"
    assert process.wait(10) == 75
    assert (folder / "seen.txt").read_text() == "`resnet-recipes stop`"
    assert not (folder / STOP).exists()


def test_runs_name_the_command_that_stopped_a_run(live_run, run_command):
    folder, _ = live_run
    (folder / SUMMARY).unlink()
    write_ending(folder / EXIT, Ending(75, message="SIGTERM"))
    run_command("resnet-recipes stop first")
    assert "    reason: `resnet-recipes stop`\n" in run_command("resnet-recipes runs").out


@pytest.mark.parametrize(
    ("live_run", "is_in_sweep"), [(None, False), (die_with_parent, True)], indirect=["live_run"]
)
def test_stop_of_run_names_its_sweep(live_run, is_in_sweep, run_command):
    err = run_command("resnet-recipes stop first").err
    assert ("its sweep starts no other run\n" in err) == is_in_sweep


def test_stop_keeps_the_reason_of_a_failed_run(live_run, run_command):
    folder, _ = live_run
    write_ending(folder / EXIT, Ending(1, message="out of memory"))
    run_command("resnet-recipes stop first")
    assert read_ending(folder / EXIT).message == "out of memory"


def test_stop_accepts_a_run_that_just_ended(live_run, run_command, monkeypatch):
    _, process = live_run
    process.kill()
    process.wait()
    states = iter([True, False])
    monkeypatch.setattr(stop, "is_running", lambda folder: next(states))
    monkeypatch.setattr(stop, "find_holder", lambda folder: process.pid)
    assert "stopped" in run_command("resnet-recipes stop first").out


def test_stop_of_stopped_run_suggests_resuming_it(run_command):
    create_run_folder(Path("runs"), "first", state="stopped")
    message = run_command("resnet-recipes stop first", 3).err
    assert "runs/first is stopped at epoch 4.00" in message
    assert "try:   resnet-train --resume runs/first\n" in message


def test_stop_suggests_the_live_run_of_a_folder(live_run, run_command):
    for folder in ("runs", "sweep"):
        message = run_command(f"resnet-recipes stop {folder}", 3).err
        assert f"{folder} is a folder of runs, not a run\n" in message
        assert f"try:   resnet-recipes stop {folder}/first\n" in message
        Path("runs").rename("sweep") if folder == "runs" else None
    message = run_command("resnet-recipes stop last", 3).err
    assert "try:   resnet-recipes stop sweep/first\n" in message


def test_runs_rm_keeps_all_if_one_runs(live_run, run_command):
    folder, process = live_run
    other = create_run_folder(folder.parent, "other")
    result = run_command("resnet-recipes runs rm other first --yes", 3)
    assert not result.out
    assert f"runs/first is in use by process {process.pid} on" in result.err
    assert "try:   resnet-recipes stop runs/first\n" in result.err
    assert "watch" not in result.err
    assert folder.exists()
    assert other.exists()


def test_stop_signals_only_holder_of_the_lock(live_run, run_command):
    folder, process = live_run
    stranger = shutil.copytree(folder, folder.with_name("stranger"))
    (stranger / LOCK).write_text(json.dumps({"pid": process.pid}))
    assert "stranger is finished" in run_command("resnet-recipes stop stranger", 3).err
    assert process.poll() is None


def test_runs_rm_with_yes_deletes_the_last_run(run_command):
    folder = create_run_folder(Path("runs"), "first")
    assert run_command("resnet-recipes runs rm last --yes").out == "deleted first\n"
    assert not folder.exists()


@pytest.mark.parametrize(("answer", "is_kept"), [("Y\n", False), ("", True), ("n\n", True)])
def test_runs_rm_asks_for_confirmation_first(answer, is_kept, monkeypatch, run_command):
    folder = create_run_folder(Path("runs"), "first")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin.readline", lambda: answer)
    out = run_command("resnet-recipes runs rm first runs/first").out
    ending = "nothing was deleted\n" if is_kept else "deleted first\n"
    assert out == f"Delete first with all checkpoints? [y/N] {ending}"
    assert folder.exists() == is_kept
