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
from resnet_recipes.data.stored import Blank, Outputs, begun, kept, layout, read, spread

SHAPE = 2, 1, 99
ABOUT = {"teacher": "a", "made_for": '{"seed": 1}'}


def finished(outputs: Outputs, epoch: int) -> None:
    """Record that an epoch is whole."""
    outputs.sha256[epoch] = outputs.digest(epoch)


def written(path: Path, outputs: tuple[torch.Tensor, torch.Tensor], classes: int = 3) -> Path:
    """Write a file in which every epoch has the same outputs."""
    blank = Blank(path, ABOUT, layout((*SHAPE, outputs[0].shape[1]), classes))
    blank.begin().close()
    found = begun(blank.part)
    for epoch in range(2):
        found.values[epoch, 0], found.classes[epoch, 0] = outputs
        finished(found, epoch)
    return blank.part.rename(path)


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


def fault(outputs: Outputs, shape: tuple[int, int, int] = SHAPE, classes: int = 3) -> str:
    with pytest.raises(ValueError, match="it") as caught:
        outputs.check(shape, classes)
    return str(caught.value)


def test_outputs_that_were_written_have_no_fault(tmp_path):
    outputs, teacher, made_for = read(written(tmp_path / "two", kept(torch.randn(99, 3), 2)))
    assert (teacher, made_for) == ("a", {"seed": 1})
    outputs.check(SHAPE, 3)
    for shape in ((2, 1, 98), (2, 2, 99), (1, 1, 99), (2, 99)):
        assert "do not belong to these images" in fault(outputs, shape)
    assert "do not belong to these images" in fault(outputs, classes=1)
    none = outputs._replace(**{name: part[:0] for name, part in outputs._asdict().items()})
    assert "do not belong to these images" in fault(none, (0, 1, 99))


@pytest.mark.parametrize(
    ("values", "classes"), [(math.nan, 1), (math.inf, 1), (-math.inf, 1), (-1.0, 3)]
)
def test_outputs_of_no_class_or_no_number_are_refused(tmp_path, values, classes):
    outputs = torch.full((99, 2), values), torch.full((99, 2), classes)
    found = read(written(tmp_path / "two.safetensors", outputs))[0]
    assert "not finite numbers, or of no class" in fault(found)


def test_an_epoch_that_is_not_whole_is_a_fault(tmp_path):
    blank = Blank(tmp_path / "two.safetensors", ABOUT, layout((*SHAPE, 2), 3))
    blank.begin().close()
    outputs = begun(blank.part)
    finished(outputs, 0)
    assert "was changed" in fault(outputs)


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
    outputs = read(written(tmp_path / "two.safetensors", kept(torch.randn(99, 3), 2)))[0]
    assert "do not belong to these images" in fault(outputs._replace(**change))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "two.safetensors"


def blank(path: Path, teacher: str = "a", images: int = 99) -> Blank:
    return Blank(path, ABOUT | {"teacher": teacher}, layout((2, 1, images, 2), 3))


def test_a_file_that_was_killed_while_it_was_written_can_go_on(path):
    one = blank(path)
    one.begin().close()
    os.truncate(one.part, 20)  # killed while it began
    for epoch in range(2):
        with blank(path).begin():
            outputs = begun(one.part)
            assert outputs.missing() == list(range(epoch, 2))
            finished(outputs, epoch)
    blank(path).begin().close()  # killed before the file got its name
    outputs = begun(one.part)
    assert outputs.missing() == []
    outputs.values[0, 0, 98] = 1  # an epoch that did not reach the disk
    assert outputs.missing() == [0]
    assert [file.name for file in path.parent.iterdir()] == ["two.safetensors.part"]


def test_a_file_takes_its_room_at_once(path):
    one = blank(path, images=1 << 16)
    assert one.bytes > 1 << 18
    one.begin().close()
    assert one.part.stat().st_blocks * 512 >= one.bytes == one.part.stat().st_size


def test_a_file_that_may_not_grow_is_not_begun(path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            blank(path, images=1 << 16).begin()
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
        blank(path).begin()
    assert (path.parent / "other").read_bytes() == b""


def test_two_commands_do_not_write_the_same_file(path):
    with blank(path).begin(), pytest.raises(NotReadyError, match="being written by another"):
        blank(path).begin()
    blank(path).begin().close()
    with pytest.raises(NotReadyError, match="was begun with other settings"):
        blank(path, "b").begin()
