"""A file that ranks write together, and that a later command goes on with."""

import errno
import os
import resource
from pathlib import Path

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.stored import Description
from resnet_recipes.data.stored.writer import Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "two.safetensors"


def writer(path: Path, teacher: str = "a", images: int = 99) -> Writer:
    return Writer(path, Description(teacher, False, {}), (2, 1, images, 2), 3)


def test_a_writer_that_is_killed_anywhere_can_go_on(path):
    one, part = writer(path), path.with_name("two.safetensors.part")
    one.begin().close()
    os.truncate(part, 20)  # killed while it began
    for epoch in range(2):
        with writer(path).begin():
            one = writer(path)
            assert one.whole == epoch
            one.finish(epoch)
    again = writer(path)  # killed before the file got its name
    again.begin().close()
    assert again.whole == 2
    again.publish()
    assert [file.name for file in path.parent.iterdir()] == ["two.safetensors"]


def test_a_file_takes_its_room_at_once(path):
    one = writer(path, images=1 << 16)
    assert one.missing == one.bytes > 1 << 18
    one.begin().close()
    part = path.with_name("two.safetensors.part")
    assert part.stat().st_blocks * 512 >= one.bytes
    assert one.missing == 0


def test_a_file_that_may_not_grow_is_not_begun(path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            writer(path, images=1 << 16).begin()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert str(caught.value.filename).endswith("two.safetensors.part")


@pytest.mark.parametrize("planted", [os.mkfifo, os.mkdir, lambda path: os.symlink("other", path)])
def test_a_file_is_not_written_through_what_has_its_name(path, planted):
    path.parent.mkdir()
    planted(path.with_name("two.safetensors.part"))
    (path.parent / "other").write_bytes(b"")
    with pytest.raises(OSError):  # noqa: PT011, of many kinds
        writer(path).begin()
    assert (path.parent / "other").read_bytes() == b""


def test_two_commands_do_not_write_the_same_file(path):
    with writer(path).begin(), pytest.raises(NotReadyError, match="being written by another"):
        writer(path).begin()
    writer(path).begin().close()
    with pytest.raises(NotReadyError, match="was begun with other settings"):
        writer(path, "b").begin()
