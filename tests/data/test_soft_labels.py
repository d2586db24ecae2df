"""Stored teacher outputs: the file that ranks write, and the values read from it."""

import errno
import math
import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.base import SoftLabels
from resnet_recipes.data.loading.storage import Rows
from resnet_recipes.data.soft_labels import (
    SoftLabelArrays,
    SoftLabelStorage,
    choose_outputs,
    make_header,
    map_soft_labels,
    open_for_writing,
    spread_probabilities,
)
from tests.shared.disk_faults import limit_file_size
from tests.shared.tables import parse_rows

SHAPE = 2, 1, 99
ABOUT = {"teacher": "a", "data.seed": "1"}


def begin_file(path: Path, count: int = 2, classes: int = 3) -> SoftLabelArrays:
    open_for_writing(path, *make_header(ABOUT, (*SHAPE, count), classes)).close()
    return map_soft_labels(path, "r+")[0]


def finish_epoch(outputs: SoftLabelArrays, epoch: int) -> None:
    outputs.sha256[epoch] = outputs.digest(epoch)


def write_soft_labels(
    path: Path, outputs: tuple[torch.Tensor, torch.Tensor], classes: int = 3
) -> Path:
    stored = begin_file(path, outputs[0].shape[1], classes)
    for epoch in range(2):
        stored.values[epoch, 0], stored.classes[epoch, 0] = outputs
        finish_epoch(stored, epoch)
    return path


def test_probability_of_other_classes_is_spread_evenly():
    classes = np.array([[2, 0]])
    values = np.log([[0.5, 0.3]])
    probabilities = np.empty((1, 6), np.float32)
    spread_probabilities(values.astype(np.float16), classes, 1.0, probabilities)
    whole = [0.3, 0.05, 0.5, 0.05, 0.05, 0.05]
    assert probabilities[0].tolist() == pytest.approx(whole, abs=2e-4)
    spread_probabilities(values.astype(np.float16), classes, 3.0, probabilities)
    softened = torch.tensor(whole).log().div(3).softmax(0)
    assert probabilities[0].tolist() == pytest.approx(softened.tolist(), abs=2e-4)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_spread_probabilities_are_bit_identical_to_torch_softmax(temperature):
    logits = torch.randn(50, 7)
    probabilities = np.empty((50, 7), np.float32)
    values, classes = choose_outputs(logits, 7)
    spread_probabilities(values.numpy(), classes.numpy(), temperature, probabilities)
    assert torch.equal(torch.from_numpy(probabilities), torch.softmax(logits / temperature, 1))


def find_fault(
    outputs: SoftLabelArrays, shape: tuple[int, int, int] = SHAPE, classes: int = 3
) -> str:
    """Return why the outputs do not belong to images of this shape."""
    with pytest.raises(ValueError, match="it") as caught:
        outputs.check(shape, classes)
    return str(caught.value)


def test_written_soft_labels_pass_their_check(tmp_path):
    outputs, about = map_soft_labels(
        write_soft_labels(tmp_path / "two", choose_outputs(torch.randn(99, 3), 2))
    )
    assert about == ABOUT
    outputs.check(SHAPE, 3)
    for shape in ((2, 1, 98), (2, 2, 99), (1, 1, 99), (2, 99)):
        assert "do not belong to these images" in find_fault(outputs, shape)
    assert "do not belong to these images" in find_fault(outputs, classes=1)
    none = outputs._replace(**{name: part[:0] for name, part in outputs._asdict().items()})
    assert "do not belong to these images" in find_fault(none, (0, 1, 99))


@pytest.mark.parametrize(
    ("values", "classes"), [(math.nan, 1), (math.inf, 1), (-math.inf, 1), (-1.0, 3)]
)
def test_soft_labels_reject_unknown_classes_and_nan(tmp_path, values, classes):
    outputs = torch.full((99, 2), values), torch.full((99, 2), classes)
    stored = map_soft_labels(write_soft_labels(tmp_path / "two.safetensors", outputs))[0]
    assert "not finite numbers, or of no class" in find_fault(stored)


def test_soft_labels_with_unfinished_epoch_have_a_fault(tmp_path):
    outputs = begin_file(tmp_path / "two.safetensors")
    finish_epoch(outputs, 0)
    assert "was changed" in find_fault(outputs)


@pytest.mark.parametrize(
    "changes",
    parse_rows(
        """
values int64 2,1,99,2
classes float32 2,1,99,2
classes uint8 2,1,99,3
values float32 2,1,99,0 | classes uint8 2,1,99,0
sha256 uint8 2,31
"""
    ),
)
def test_soft_labels_reject_other_shapes_and_types(tmp_path, changes):
    outputs = map_soft_labels(
        write_soft_labels(tmp_path / "two.safetensors", choose_outputs(torch.randn(99, 3), 2))
    )[0]
    for name, kind, shape in map(str.split, changes):
        zeros = np.zeros([*map(int, shape.split(","))], kind)
        outputs = outputs._replace(**{name: zeros})
    assert "do not belong to these images" in find_fault(outputs)


@pytest.fixture
def part_path(tmp_path: Path) -> Path:
    """The path of a file of soft labels that is not complete, in a folder that does not exist."""
    return tmp_path / "new" / "two.safetensors.part"


#: The first bytes of a file, and its total size.
SMALL, LARGE = (make_header(ABOUT, (2, 1, images, 2), 3) for images in (99, 1 << 16))


def test_soft_labels_continue_after_a_killed_writer(part_path):
    open_for_writing(part_path, *SMALL).close()
    os.truncate(part_path, 20)  # killed at the start
    for epoch, more in enumerate((0, 9)):  # foreign bytes
        os.truncate(part_path, part_path.stat().st_size + more)
        with open_for_writing(part_path, *SMALL):
            outputs = map_soft_labels(part_path, "r+")[0]
            assert outputs.find_missing_epochs() == list(range(epoch, 2))
            finish_epoch(outputs, epoch)
    open_for_writing(part_path, *SMALL).close()  # killed before the rename
    outputs = map_soft_labels(part_path, "r+")[0]
    assert outputs.find_missing_epochs() == []
    outputs.values[0, 0, 98] = 1  # as if it was not on disk
    assert outputs.find_missing_epochs() == [0]
    assert [file.name for file in part_path.parent.iterdir()] == ["two.safetensors.part"]


def test_opening_soft_labels_allocates_their_disk_space(part_path):
    open_for_writing(part_path, *LARGE).close()
    assert part_path.stat().st_blocks * 512 >= part_path.stat().st_size == LARGE[1] > 1 << 18


def test_soft_labels_beyond_size_limit_are_not_started(part_path):
    with pytest.raises(OSError, match="too large") as caught, limit_file_size(1 << 16):
        open_for_writing(part_path, *LARGE)
    assert caught.value.errno == errno.EFBIG
    assert str(caught.value.filename).endswith("two.safetensors.part")


@pytest.mark.parametrize("create", [os.mkfifo, os.mkdir, lambda path: os.symlink("other", path)])
def test_writer_rejects_special_file_under_its_name(part_path, create):
    part_path.parent.mkdir()
    create(part_path)
    (part_path.parent / "other").write_bytes(b"")
    with pytest.raises(OSError):  # noqa: PT011 many types
        open_for_writing(part_path, *SMALL)
    assert (part_path.parent / "other").read_bytes() == b""


def test_soft_labels_reject_a_second_writer(part_path):
    with (
        open_for_writing(part_path, *SMALL),
        pytest.raises(NotReadyError, match="being written by another"),
    ):
        open_for_writing(part_path, *SMALL)
    with pytest.raises(NotReadyError, match="was started with other settings"):
        open_for_writing(part_path, *LARGE)


def open_soft_labels(path: Path) -> SoftLabels:
    """Return the soft labels of a file: two classes, for two epochs."""
    return SoftLabels(path, map_soft_labels(path)[0].checksum, 2, 2)


def test_worker_process_rejects_replaced_outputs(tmp_path):
    path = tmp_path / "two.safetensors"
    images = SimpleNamespace(labels=0, in_threads=0, path=str)
    write_soft_labels(path, choose_outputs(torch.randn(99, 3), 2))
    sent = pickle.dumps(SoftLabelStorage(images, open_soft_labels(path)))  # as sent to a process
    assert len(sent) < path.stat().st_size
    pickle.loads(sent)
    write_soft_labels(path, choose_outputs(torch.randn(99, 3), 2))
    with pytest.raises(NotReadyError, match="was replaced after it was checked"):
        pickle.loads(sent)


def test_epochs_and_copies_have_their_own_soft_labels(tmp_path):
    path = tmp_path / "two.safetensors"
    shape = (2, 2, 3, 2)
    open_for_writing(path, *make_header(ABOUT, shape, 2)).close()
    outputs = map_soft_labels(path, "r+")[0]
    outputs.values[:] = torch.arange(24.0).view(shape).square()
    outputs.classes[:] = [0, 1]
    images = np.array([2, 0, 2])
    copies = np.array([1, 0, 0])
    none = np.empty(0)
    filled = Rows(1, images, copies, none, none, none, np.empty((3, 2), np.float32))
    SoftLabelStorage(Mock(), open_soft_labels(path)._replace(temperature=10.0)).fill(filled)
    # differences of neighboring squares: ((n + 1)^2 - n^2) / 10
    firsts = [12 + 6 * copy + 2 * image for copy, image in ((1, 2), (0, 0), (0, 2))]
    expected = [1 / (1 + math.exp((2 * first + 1) / 10)) for first in firsts]
    assert filled.soft_labels[:, 0].tolist() == pytest.approx(expected, rel=1e-4)


def test_rewritten_soft_labels_are_read_again(tmp_path):
    """A later run in the same process reads it again."""
    path = tmp_path / "two.safetensors"
    none = np.zeros(1, np.int64)
    for logits in ([2.0, 1.0], [1.0, 2.0]):
        write_soft_labels(path, (torch.tensor([logits]).log_softmax(1), torch.tensor([[0, 1]])))
        filled = Rows(0, none, none, none, none, none, np.empty((1, 2), np.float32))
        SoftLabelStorage(Mock(), open_soft_labels(path)).fill(filled)
        expected = torch.tensor(logits).softmax(0).tolist()
        assert filled.soft_labels[0].tolist() == pytest.approx(expected, abs=1e-3)
