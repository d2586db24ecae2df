"""Files are complete or absent."""

import errno
import os
import tempfile

import pytest

from resnet_recipes.base import atomic
from tests.shared.disk_faults import create_special_file


def test_replace_file_names_the_file_after_its_block(tmp_path):
    with atomic.replace_file(tmp_path / "a") as file:
        file.write(b"half")
        assert not (tmp_path / "a").exists()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "half")]


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_failed_replace_file_leaves_only_the_old_file(failure, tmp_path):
    def write_and_interrupt() -> None:
        with atomic.replace_file(tmp_path / "a") as file:
            file.write(b"new")
            raise failure

    (tmp_path / "a").write_text("old")
    with pytest.raises(type(failure)):
        write_and_interrupt()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_write_text_replaces_a_link_without_following_it(tmp_path):
    (tmp_path / "precious").write_text("old")
    (tmp_path / "a").symlink_to("precious")
    atomic.write_text(tmp_path / "a", "new")
    assert (tmp_path / "precious").read_text() == "old"
    assert (tmp_path / "a").read_text() == "new"


@pytest.mark.parametrize("kind", ["fifo", "device", "socket"])
def test_write_text_rejects_and_keeps_a_special_file(kind, tmp_path):
    before = create_special_file(tmp_path / "a", kind).stat()
    with pytest.raises(OSError, match="Not a regular file"):
        atomic.write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").stat() == before
    assert len(os.listdir(tmp_path)) == 1


def test_delete_parts_keeps_files_with_other_names(tmp_path):
    for name in (f"a.{16 * 'f'}.part", "a.part", "b.tmp", f"{16 * 'f'}.part.txt"):
        (tmp_path / name).touch()
    atomic.delete_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.part",
        "b.tmp",
        f"{16 * 'f'}.part.txt",
    ]


def test_failed_sync_keeps_the_old_file(tmp_path, monkeypatch):
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        atomic.write_text(tmp_path / "a", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_killed_folder_part_is_deleted_by_next_process(tmp_path):
    others = [
        tmp_path / name for name in (".out.part", ".out.of.mine.part", f".other.{'0' * 16}.part")
    ]
    for left in (tmp_path / f".out.{'0' * 16}.part", *others):
        left.mkdir()
        (left / "model.safetensors").write_text("half")
    with atomic.create_folder(tmp_path / "out") as folder:
        (folder / "model.safetensors").write_text("whole")
    assert {*tmp_path.iterdir()} == {tmp_path / "out", *others}


@pytest.mark.parametrize("call", ["fstat", "close", "rmdir", "unlink", "scandir"])
def test_temporary_folder_survives_a_failing_cleanup(call, tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with atomic.make_temporary_folder() as folder:
        (folder / "a").touch()
        (folder / "b").mkdir()
        monkeypatch.setattr(os, call, fail)
    monkeypatch.undo()
    assert folder.parent == tmp_path
