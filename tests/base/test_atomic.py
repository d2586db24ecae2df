"""Files are whole or absent."""

import errno
import os

import pytest

from resnet_recipes.base import atomic
from tests.base.test_reading import special


def test_nothing_has_the_name_before_the_end_of_the_block(tmp_path):
    with atomic.replacing(tmp_path / "a") as file:
        file.write(b"half")
        assert not (tmp_path / "a").exists()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "half")]


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_after_a_failure_the_old_file_stays_and_nothing_else(failure, tmp_path):
    def interrupted() -> None:
        with atomic.replacing(tmp_path / "a") as file:
            file.write(b"new")
            raise failure

    (tmp_path / "a").write_text("old")
    with pytest.raises(type(failure)):
        interrupted()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_a_link_in_the_way_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "precious").write_text("old")
    (tmp_path / "a").symlink_to("precious")
    atomic.write_text(tmp_path / "a", "new")
    assert (tmp_path / "precious").read_text() == "old"
    assert (tmp_path / "a").read_text() == "new"


@pytest.mark.parametrize("kind", ["fifo", "device", "socket"])
def test_a_special_file_is_not_replaced(kind, tmp_path):
    before = special(tmp_path / "a", kind).stat()
    with pytest.raises(OSError, match="Not a regular file"):
        atomic.write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").stat() == before
    assert len(os.listdir(tmp_path)) == 1


def test_only_parts_of_our_own_are_deleted(tmp_path):
    for name in (f"a.{16 * 'f'}.part", "a.part", "b.tmp", f"{16 * 'f'}.part.txt"):
        (tmp_path / name).touch()
    atomic.delete_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.part",
        "b.tmp",
        f"{16 * 'f'}.part.txt",
    ]


def test_a_file_that_cannot_reach_the_disk_does_not_replace_the_old(tmp_path, monkeypatch):
    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output"):
        atomic.write_text(tmp_path / "a", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_what_a_killed_process_has_left_of_a_folder_is_deleted_by_the_next(tmp_path):
    others = [
        tmp_path / name for name in (".out.part", ".out.of.mine.part", f".other.{'0' * 16}.part")
    ]
    for left in (tmp_path / f".out.{'0' * 16}.part", *others):
        left.mkdir()
        (left / "model.safetensors").write_text("half")
    with atomic.new_folder(tmp_path / "out") as folder:
        (folder / "model.safetensors").write_text("whole")
    assert {*tmp_path.iterdir()} == {tmp_path / "out", *others}
