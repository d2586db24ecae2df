"""Only one run writes into a folder."""

import fcntl
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import TextIO

import pytest

from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.run_folder import lock
from resnet_recipes.run_folder.lock import HeldFolder, LockedFolder, find_holder, reject_links


def test_second_lock_names_the_holder(tmp_path):
    holder = f"is in use by process {os.getpid()} on"
    with LockedFolder(tmp_path), pytest.raises(NotReadyError, match=holder), LockedFolder(tmp_path):
        pass


@pytest.mark.parametrize("pid", ["null", '"\\u0000"', '"../tmp"', "[1]", "1e30", "-1"])
def test_find_holder_rejects_forged_process_id(pid, tmp_path):
    (tmp_path / "lock").write_text(f'{{"pid": {pid}}}')
    with pytest.raises(NotReadyError, match="cannot be stopped from here"):
        find_holder(tmp_path)


def test_lock_waits_for_a_brief_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "MAX_RETRY_SECONDS", 60.0)
    (tmp_path / "lock").touch()
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)  # like `resnet-recipes runs`
    threading.Timer(0.1, os.close, [looking]).start()
    with LockedFolder(tmp_path):
        pass


def test_lock_of_killed_run_is_free(tmp_path):
    child = os.fork()
    if child == 0:
        with LockedFolder(tmp_path):
            (tmp_path / "held").touch()
            time.sleep(60)
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    with pytest.raises(NotReadyError, match=f"process {child} on"), LockedFolder(tmp_path):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with LockedFolder(tmp_path):
        pass


def test_folder_replaced_before_its_lock_is_rejected(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    take = lock._try_lock
    folder.mkdir()

    def replace_and_lock(file: TextIO) -> bool:
        folder.rename(tmp_path / "old")
        folder.mkdir()
        return take(file)

    monkeypatch.setattr(lock, "_try_lock", replace_and_lock)
    with pytest.raises(NotReadyError, match="was replaced by another command"):
        LockedFolder(folder)
    assert list(folder.iterdir()) == []
    assert not lock.is_running(tmp_path / "old")


def test_lock_moves_with_its_folder(tmp_path):
    (tmp_path / "draft").mkdir()
    with LockedFolder(tmp_path / "draft") as held:
        held.move(tmp_path / "mine")
        assert (held.path, held.is_in_place) == (tmp_path / "mine", True)
        with pytest.raises(NotReadyError, match="in use"):
            LockedFolder(tmp_path / "mine")
    assert not lock.is_running(tmp_path / "mine")


def test_lock_names_folder_on_full_disk(tmp_path):
    (tmp_path / "lock").symlink_to("/dev/full")
    with pytest.raises(NotReadyError) as caught, LockedFolder(tmp_path):
        pass
    (problem,) = caught.value.problems
    assert problem.key == str(tmp_path)
    assert problem.clause.startswith("cannot be locked: ")


def test_lock_ignores_a_failure_to_close(tmp_path):
    with LockedFolder(tmp_path):
        links = Path("/proc/self/fd").glob("*")
        (file,) = (link for link in links if link.resolve() == tmp_path.resolve() / "lock")
        os.close(int(file.name))  # a second close fails
    with LockedFolder(tmp_path):
        pass


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    for name in ("run/checkpoints", "run/logs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/config.yaml").touch()
    return tmp_path / "run"


@pytest.mark.parametrize(
    "name",
    ["lock", "heartbeat", "endings", "exit.json", "logs/rank0.log", "checkpoints/probe", "x"],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.symlink_to("missing"),
        lambda path: path.symlink_to(__file__),
        lambda path: path.symlink_to(Path(__file__).parent),
        os.mkfifo,
    ],
    ids=["a link to nothing", "a link to a file", "a link to a folder", "fifo"],
)
def test_reject_links_rejects_links_and_special_files(name, make, run_folder):
    reject_links(run_folder)
    make(run_folder / name)
    with pytest.raises(NotReadyError, match=f"{name} is a symbolic link or a special file"):
        reject_links(run_folder)


@pytest.mark.parametrize("then", ["deleted", "moved", "made again", "a file now"])
def test_held_folder_notices_a_replaced_folder(then, run_folder):
    held = HeldFolder(run_folder)
    held.confirm()
    (run_folder / "more").mkdir()
    held.confirm()
    run_folder.rename(run_folder.with_name("moved"))
    if then == "deleted":
        shutil.rmtree(run_folder.with_name("moved"))
    elif then == "made again":
        run_folder.mkdir()
    elif then == "a file now":
        run_folder.touch()
    with pytest.raises(TrainingError, match="was moved, deleted or replaced"):
        held.confirm()
