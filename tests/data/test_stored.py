"""What is stored of a teacher's outputs: a file that ranks write, and what is read of it."""

import errno
import math
import os
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.stored import Description, Writer, kept, read, spread

SHAPE = 2, 1, 99


def written(path: Path, outputs: tuple[torch.Tensor, torch.Tensor], classes: int = 3) -> Path:
    """Write a file in which every epoch has the same outputs."""
    writer = Writer(path, Description("a", False, {}), (*SHAPE, outputs[0].shape[1]), classes)
    with writer.begin():
        for epoch in range(2):
            writer.write(epoch, 0, 0, outputs)
            writer.finish(epoch)
    writer.publish()
    return path


def test_what_is_not_kept_is_spread_evenly():
    classes, values, found = np.array([[2, 0]]), np.log([[0.5, 0.3]]), np.empty((1, 6), np.float32)
    spread(values.astype(np.float16), classes, 1.0, found)
    whole = [0.3, 0.05, 0.5, 0.05, 0.05, 0.05]
    assert found[0].tolist() == pytest.approx(whole, abs=2e-4)
    spread(values.astype(np.float16), classes, 3.0, found)
    softened = torch.tensor(whole).log().div(3).softmax(0)
    assert found[0].tolist() == pytest.approx(softened.tolist(), abs=2e-4)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_all_outputs_have_the_bits_of_torchs_softmax(temperature):
    logits, found = torch.randn(50, 7), np.empty((50, 7), np.float32)
    values, classes = kept(logits, 7)
    spread(values.numpy(), classes.numpy(), temperature, found)
    assert torch.equal(torch.from_numpy(found), torch.softmax(logits / temperature, 1))


def test_outputs_that_were_written_have_no_fault(tmp_path):
    outputs, about = read(written(tmp_path / "two.safetensors", kept(torch.randn(99, 3), 2)))
    assert about == Description("a", False, {})
    assert outputs.fault(SHAPE, 3) == ""
    for shape in ((2, 1, 98), (2, 2, 99), (1, 1, 99), (2, 99)):
        assert "do not belong to these images" in outputs.fault(shape, 3)
    assert "do not belong to these images" in outputs.fault(SHAPE, 1)
    none = outputs._replace(**{name: part[:0] for name, part in outputs._asdict().items()})
    assert "do not belong to these images" in none.fault((0, 1, 99), 3)


@pytest.mark.parametrize(
    ("values", "classes"), [(math.nan, 1), (math.inf, 1), (-math.inf, 1), (-1.0, 3)]
)
def test_outputs_of_no_class_or_no_number_are_refused(tmp_path, values, classes):
    outputs = torch.full((99, 2), values), torch.full((99, 2), classes)
    found, _ = read(written(tmp_path / "two.safetensors", outputs))
    assert "not finite numbers, or of no class" in found.fault(SHAPE, 3)


def test_an_epoch_that_is_not_whole_is_a_fault(tmp_path):
    writer = Writer(tmp_path / "two.safetensors", Description("a", False, {}), (*SHAPE, 2), 3)
    with writer.begin():
        writer.finish(0)
    writer.publish()
    assert "was changed" in read(tmp_path / "two.safetensors")[0].fault(SHAPE, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"values": np.zeros((2, 1, 99, 2), np.int64)},
        {"classes": np.zeros((2, 1, 99, 2), np.float32)},
        {"classes": np.zeros((2, 1, 99, 3), np.uint8)},
        {"values": np.zeros((2, 1, 99, 0), np.float32), "classes": np.zeros((2, 1, 99, 0), "u1")},
        {"sha256": np.zeros((2, 31), np.uint8)},
    ],
    ids=str,
)
def test_tensors_of_other_kinds_are_refused(tmp_path, change):
    outputs, _ = read(written(tmp_path / "two.safetensors", kept(torch.randn(99, 3), 2)))
    assert "do not belong to these images" in outputs._replace(**change).fault(SHAPE, 3)


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
