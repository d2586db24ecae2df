"""Checkpoints are complete or absent, are verified when read, and are never all lost."""

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import FileIO
from itertools import count
from pathlib import Path

import pytest
import torch

from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.base.reading import open_regular
from resnet_recipes.training import checkpoint
from resnet_recipes.training.checkpoint import Checkpoints
from tests.shared.checks import is_identical
from tests.shared.disk_faults import flip_bit, limit_file_size


def make_state(step: int) -> dict:
    weight = (
        torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last) + step
    )
    return {
        "step": step,
        "model": {"w": weight, "n": torch.tensor(step)},
        "optimizer": {"state": {0: {"m": weight * 2}}, "lr": [0.1, 0.2]},
        "recipe": "name: mild",
        "seconds": 1.5,
        "scaler": {},
        "none": None,
    }


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def checkpoints(tmp_path: Path, warnings: list[str]) -> Checkpoints:
    saved = Checkpoints(tmp_path / "checkpoints", 2, note=warnings.append)
    saved.open_for_writing()
    for step in (10, 20):
        saved.save(step, make_state(step), wait=True)
    return saved


def get_file(checkpoints: Checkpoints, step: int) -> Path:
    return checkpoints.folder / f"step-{step:08d}.pt"


def reopen(checkpoints: Checkpoints, note: Callable[[str], object] = print) -> Checkpoints:
    again = Checkpoints(checkpoints.folder, checkpoints.keep, note=note)
    again.open_for_writing()
    return again


def test_saved_state_is_read_back_bit_identically(checkpoints):
    step, state = reopen(checkpoints).load_newest()
    assert step == 20
    assert is_identical(state, make_state(20))
    assert state["model"]["w"].is_contiguous(memory_format=torch.channels_last)


def test_load_newest_in_empty_folder_returns_none(tmp_path):
    assert Checkpoints(tmp_path / "none", 2).load_newest() is None


def test_save_copies_tensors_before_returning(checkpoints, monkeypatch):
    write = checkpoints._write
    monkeypatch.setattr(checkpoints, "_write", lambda *args: (time.sleep(0.2), write(*args)))
    state = make_state(30)
    checkpoints.save(30, state)
    state["model"]["w"].zero_()
    checkpoints.wait()
    assert is_identical(checkpoints.load_newest().state, make_state(30))


def test_save_rejects_types_that_cannot_be_read(checkpoints):
    with pytest.raises(TypeError, match="/versions/torch is a TorchVersion"):
        checkpoints.save(30, {"versions": {"torch": torch.__version__}})


def test_save_reuses_host_memory(checkpoints):
    before = {key: tensor.data_ptr() for key, tensor in checkpoints._staging.items()}
    checkpoints.save(30, make_state(30), wait=True)
    assert {key: tensor.data_ptr() for key, tensor in checkpoints._staging.items()} == before


def test_save_keeps_newest_and_stable_phase(checkpoints):
    checkpoints.stable_step = 20
    for step in (30, 40, 50):
        checkpoints.save(step, make_state(step), wait=True)
    names = sorted(path.name for path in checkpoints.folder.glob("*.pt"))
    assert names == [f"step-000000{step}.pt" for step in (20, 40, 50)]


DAMAGES: list[Callable[[Path], object]] = [
    partial(flip_bit, at=700),
    Path.unlink,
    lambda path: [path.unlink(), os.mkfifo(path)],
    lambda path: path.write_bytes(path.read_bytes()[:512] + bytes(512) + path.read_bytes()[1024:]),
    lambda path: path.write_bytes(path.read_bytes() + b"x"),
    *(partial(os.truncate, length=size) for size in (0, 900, 60 << 30)),
    lambda path: os.truncate(path.with_suffix(".json"), 1 << 40),
]
MANIFESTS = ["{", "[" * 4000, '{"format": "1", "step": 20, "bytes": 1, "sha256": ""}']
DAMAGES += [
    lambda path, text=text: path.with_suffix(".json").write_text(text) for text in MANIFESTS
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_load_newest_skips_damaged_checkpoint_with_note(damage, checkpoints, warnings):
    damage(get_file(checkpoints, 20))
    step, state = reopen(checkpoints, warnings.append).load_newest()
    assert (step, is_identical(state, make_state(10))) == (10, True)
    assert len(warnings) == 1
    assert "step 20 was skipped" in warnings[0]


def test_load_newest_rejects_newer_format_and_keeps_file(checkpoints):
    manifest = get_file(checkpoints, 20).with_suffix(".json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 2}))
    with pytest.raises(TrainingError, match=r"step-00000020\.pt has format 2, but this version"):
        reopen(checkpoints).load_newest()
    assert get_file(checkpoints, 20).exists()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("end", [".pt", ".json"])
def test_load_newest_skips_and_keeps_temporarily_unreadable_checkpoint(
    end, code, checkpoints, warnings, monkeypatch
):
    def fail(path: Path, most: int) -> FileIO:
        if path.name == f"step-00000020{end}":
            raise OSError(code, os.strerror(code), str(path))
        return open_regular(path, most)

    again = reopen(checkpoints, warnings.append)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "open_regular", fail)
        assert again.load_newest().step == 10
    assert os.strerror(code) in warnings[0]
    again.save(15, make_state(15), wait=True)
    assert reopen(again).load_newest().step == 20


def test_load_newest_rejects_checkpoint_renamed_to_another_step(checkpoints):
    for end in (".pt", ".json"):
        path = checkpoints.folder / "step-00000020"
        path.with_suffix(end).replace(path.with_name(f"step-00000010{end}"))
    with pytest.raises(TrainingError, match="no checkpoint in"):
        reopen(checkpoints).load_newest()


def test_load_newest_fails_if_all_checkpoints_are_damaged(checkpoints):
    for step in (10, 20):
        flip_bit(get_file(checkpoints, step), 700)
    with pytest.raises(TrainingError, match="no checkpoint in"):
        reopen(checkpoints).load_newest()


@pytest.mark.parametrize("step", [15, 25])  # before and after the damaged checkpoint
def test_save_deletes_damaged_checkpoint_instead_of_good_one(step, checkpoints):
    flip_bit(get_file(checkpoints, 20), 700)
    again = reopen(checkpoints)
    again.load_newest()
    again.save(step, make_state(step), wait=True)
    assert [get_file(again, number).exists() for number in (10, step, 20)] == [True, True, False]
    assert reopen(again).load_newest().step == step


@pytest.mark.parametrize("is_damaged", [False, True])
def test_save_replaces_checkpoint_of_same_step(is_damaged, checkpoints):
    if is_damaged:
        flip_bit(get_file(checkpoints, 20), 700)
    again = reopen(checkpoints)
    again.load_newest()
    again.save(20, make_state(21), wait=True)
    assert is_identical(reopen(again).load_newest().state, make_state(21))


def test_reopened_checkpoints_delete_only_partial_saves(checkpoints):
    (checkpoints.folder / f"step-00000030.pt.{16 * 'a'}.part").write_bytes(b"half")
    (checkpoints.folder / "thesis.part").write_text("not ours")
    assert reopen(checkpoints).load_newest().step == 20
    assert [path.name for path in checkpoints.folder.glob("*.part")] == ["thesis.part"]


def test_failed_write_warns_and_leaves_checkpoints_intact(checkpoints, warnings):
    assert checkpoints.load_newest()
    with limit_file_size(1024):
        checkpoints.save(30, make_state(30))
        checkpoints.save(40, make_state(40))
        assert checkpoints.load_newest().step == 20  # waits for the save
    assert warnings == 2 * [
        "a checkpoint could not be written (File too large); training continues; the newest "
        "checkpoint is from step 20"
    ]
    assert reopen(checkpoints).load_newest().step == 20
    assert not list(checkpoints.folder.glob("*.part"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES])
def test_three_failed_writes_in_a_row_raise(code, checkpoints, monkeypatch):
    def fail(_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    for step in (30, 40, 50):
        checkpoints.save(step, make_state(step))
    with pytest.raises(TrainingError, match=f"{os.strerror(code)}.*3 times.*\\n.*step 20"):
        checkpoints.save(60, make_state(60))
    checkpoints.save(70, make_state(70), is_last=True)  # the run needs no more checkpoints
    checkpoints.wait(is_last=True)
    with pytest.raises(TrainingError, match=os.strerror(code)):
        checkpoints.wait()
    monkeypatch.undo()
    assert reopen(checkpoints).load_newest().step == 20


def test_open_for_writing_rejects_run_beyond_free_space(checkpoints, set_free_space):
    size = sum(path.stat().st_size for path in checkpoints.folder.iterdir())
    set_free_space(5_000_000)
    checkpoints.open_for_writing(size + 5_000_000)  # includes older checkpoints
    with pytest.raises(NotReadyError, match=r"has 5 MB free, and the run needs another 20 MB"):
        checkpoints.open_for_writing(size + 20_000_000)


def test_successful_save_resets_count_of_failures(checkpoints, warnings, monkeypatch):
    sync = os.fsync

    def fail(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for step in range(30, 100, 10):
        monkeypatch.setattr(os, "fsync", sync if step % 30 == 0 else fail)
        checkpoints.save(step, make_state(step))
        newest = checkpoints.load_newest()  # waits for the save
    assert len(warnings) == 4
    assert newest.step == 90


def test_failed_save_with_wait_raises(checkpoints):
    assert checkpoints.load_newest()
    match = r"\(File too large\)\n    hint:  the newest checkpoint is from step 20"
    with pytest.raises(TrainingError, match=match), limit_file_size(1024):
        checkpoints.save(30, make_state(30), wait=True)


def test_open_for_writing_rejects_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotReadyError, match="cannot be written here"):
        Checkpoints(tmp_path / "file/checkpoints", 2).open_for_writing()


def test_save_syncs_data_before_renaming(checkpoints, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, real=real: (calls.append(name), real(*args))
        )
    checkpoints.save(30, make_state(30), wait=True)
    # write data, rename, write manifest, rename, sync the folder
    assert calls == ["fsync", "replace", "fsync", "replace", "fsync"]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_killed_save_leaves_old_or_new_checkpoint(number, checkpoints, warnings):
    def kill_at_call(real: Callable, calls: Iterator[int]) -> Callable:
        def call(*args: object, **options: object) -> object:
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call

    if (child := os.fork()) == 0:
        calls = count()
        for owner, name in ((os, "fsync"), (os, "replace"), (Path, "unlink")):
            setattr(owner, name, kill_at_call(getattr(owner, name), calls))
        try:
            Checkpoints(checkpoints.folder, 2).save(30, make_state(30), wait=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    step, state = reopen(checkpoints, warnings.append).load_newest()
    assert step == (20 if number < 5 else 30)  # the fifth call renames the manifest
    assert is_identical(state, make_state(step))
    assert not warnings
