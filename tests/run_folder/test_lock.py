"""Only one run writes into a folder."""

import errno
import fcntl
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.run_folder import EXIT, lock
from resnet_recipes.run_folder.lock import HeldFolder, hold_lock, refuse_links, start_session


def test_second_lock_is_refused_naming_the_holder(tmp_path):
    holder = f"is in use by another run.*process {os.getpid()} on"
    with hold_lock(tmp_path), pytest.raises(NotReadyError, match=holder), hold_lock(tmp_path):
        pass


def test_lock_waits_for_a_brief_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 60.0)
    (tmp_path / "lock").touch()
    looking = os.open(tmp_path / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)  # as `resnet-recipes runs` does
    threading.Timer(0.1, os.close, [looking]).start()
    with hold_lock(tmp_path):
        pass


def test_new_session_deletes_the_last_ending(tmp_path):
    (tmp_path / EXIT).touch()
    with hold_lock(tmp_path), pytest.raises(NotReadyError), start_session(tmp_path):
        pass
    assert (tmp_path / EXIT).exists()
    with start_session(tmp_path):
        assert not (tmp_path / EXIT).exists()


def test_lock_of_killed_run_is_free(tmp_path):
    child = os.fork()
    if child == 0:
        with hold_lock(tmp_path):
            (tmp_path / "held").touch()
            time.sleep(60)
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    with pytest.raises(NotReadyError, match=f"process {child} on"), hold_lock(tmp_path):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with hold_lock(tmp_path):
        pass


def test_locked_waits_for_the_folder_that_takes_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE", 60.0)
    mine, flock, tries = tmp_path / "mine", fcntl.flock, []
    mine.mkdir()

    def counted(file, how):
        tries.append(how)
        return flock(file, how)

    def wait() -> None:
        with hold_lock(mine):
            found.append(lock.is_running(mine))

    found: list[bool] = []
    waiting = threading.Thread(target=wait, daemon=True)
    with hold_lock(mine):
        monkeypatch.setattr(fcntl, "flock", counted)
        waiting.start()
        while not tries:  # it has opened the lock of the first folder
            time.sleep(0.001)
        mine.rename(tmp_path / "old")
        mine.mkdir()
    waiting.join(30)
    assert found == [True]


def test_locked_names_the_folder_on_a_full_disk(tmp_path):
    (tmp_path / "lock").symlink_to("/dev/full")
    with pytest.raises(NotReadyError) as refused, hold_lock(tmp_path):
        pass
    (problem,) = refused.value.problems
    assert problem.key == str(tmp_path)
    assert problem.clause.startswith("cannot be locked: ")


def test_locked_names_the_folder_on_a_disk_without_locks(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(NotReadyError, match="cannot be locked: No locks available"):
        hold_lock(tmp_path).__enter__()


def test_locked_ignores_a_failure_to_close(tmp_path):
    with hold_lock(tmp_path):
        links = Path("/proc/self/fd").glob("*")
        (file,) = (link for link in links if link.resolve() == tmp_path.resolve() / "lock")
        os.close(int(file.name))  # closing it again fails
    with hold_lock(tmp_path):
        pass


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder."""
    for name in ("run/checkpoints", "run/logs", "precious"):
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
        lambda path: path.symlink_to("precious"),
        lambda path: path.symlink_to(__file__),
        lambda path: path.symlink_to(Path(__file__).parent),
        os.mkfifo,
    ],
    ids=["a link to nothing", "a link to a file", "a link to a folder", "fifo"],
)
def test_refuse_links_rejects_links_and_special_files(name, make, run):
    refuse_links(run)
    make(run / name)
    with pytest.raises(NotReadyError, match=f"{name}: is a symbolic link or a special file"):
        refuse_links(run)


@pytest.mark.parametrize("then", ["deleted", "moved", "made again", "a file now"])
def test_held_folder_notices_a_replaced_folder(then, run):
    held = HeldFolder(run)
    held.confirm()
    (run / "more").mkdir()
    held.confirm()
    run.rename(run.with_name("moved"))
    if then == "deleted":
        shutil.rmtree(run.with_name("moved"))
    elif then == "made again":
        run.mkdir()
    elif then == "a file now":
        run.touch()
    with pytest.raises(TrainingError, match="was moved, deleted or replaced"):
        held.confirm()
