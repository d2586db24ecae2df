"""Damaged .beton files are refused, or their damage is reported; none is read wrongly."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.beton import (
    ALLOCATION,
    FIELD,
    HEADER,
    JPEG,
    METADATA_START,
    SAMPLE,
    open_beton,
)
from resnet_recipes.data.beton.sidecar import sidecar_path


class Parts:
    """The bytes of a .beton file with its parts as arrays to be changed in place."""

    def __init__(self, data: bytes):
        self.data = np.frombuffer(data, np.uint8).copy()
        self.header = self.data[: HEADER.itemsize].view(HEADER)
        self.fields = self.data[HEADER.itemsize : METADATA_START].view(FIELD)
        end = METADATA_START + int(self.header["num_samples"][0]) * SAMPLE.itemsize
        self.samples = self.data[METADATA_START:end].view(SAMPLE)
        self.images = self.samples["image"]
        self.table = self.data[int(self.header["table_ptr"][0]) :].view(ALLOCATION)

    def first(self, mode: int) -> int:
        """Return the first sample that is stored this way."""
        return int(np.flatnonzero(self.images["mode"] == mode)[0])


def put(part: str, key: str, value: object, at: int = 0) -> Callable[[Parts], None]:
    """Return a change of one number: `value`, or what `value` makes of the old one."""

    def change(parts: Parts) -> None:
        column = getattr(parts, part)[key]
        column[at] = value(column[at]) if callable(value) else value

    return change


def cut(end: int | float) -> Callable[[Parts], None]:
    """Return a change that keeps the first bytes, or that share of them."""

    def change(parts: Parts) -> None:
        parts.data = parts.data[: int(len(parts.data) * end) if isinstance(end, float) else end]

    return change


def reach(parts: Parts) -> None:
    """Let the last sample end within the table: a JPEG, for raw ones have a known length."""
    last = parts.table["ptr"].argmax()
    parts.images["mode"][last] = JPEG
    parts.table["size"][last] = parts.header["table_ptr"][0] - parts.table["ptr"][last] + 1


def grow(parts: Parts) -> None:
    parts.data = np.append(parts.data, np.zeros(24, np.uint8))


def share_bytes(parts: Parts) -> None:
    parts.images["ptr"][1] = parts.table["ptr"][1] = parts.table["ptr"][0]


def place_in_metadata(parts: Parts) -> None:
    parts.images["ptr"][0] = parts.table["ptr"][0] = METADATA_START


def widen_a_raw_image(parts: Parts) -> None:
    parts.images["width"][parts.first(1)] += 1


def call_jpeg_raw(parts: Parts) -> None:
    parts.images["mode"][parts.first(0)] = 1


MUTATIONS = {
    "version 1": put("header", "version", 1),
    "version 3": put("header", "version", 3),
    "header never written": lambda parts: parts.header.fill(0),
    "three fields": put("header", "num_fields", 3),
    "page size not a power of two": put("header", "page_size", lambda old: old + 1),
    "page size zero": put("header", "page_size", 0),
    "smaller pages": put("header", "page_size", 4096),
    "one sample more": put("header", "num_samples", lambda old: old + 1),
    "one sample less": put("header", "num_samples", lambda old: old - 1),
    "no samples": put("header", "num_samples", 0),
    "2^63 samples": put("header", "num_samples", 1 << 63),
    "table moved": put("header", "table_ptr", lambda old: old + 8),
    "table at zero": put("header", "table_ptr", 0),
    "table beyond the end": put("header", "table_ptr", 1 << 62),
    "field of another type": put("fields", "type_id", 3),
    "unknown field": put("fields", "type_id", 255, at=1),
    "pointer moved": put("images", "ptr", lambda old: old + 1),
    "pointer beyond the end": put("images", "ptr", 1 << 63),
    "table entry moved": put("table", "ptr", lambda old: old + 1),
    "table entry too long": put("table", "size", 1 << 40),
    "table entry into the table": reach,
    "table entry empty": put("table", "size", 0),
    "table names a sample twice": put("table", "sample", 1),
    "two samples share bytes": share_bytes,
    "sample inside the metadata": place_in_metadata,
    "raw image wider": widen_a_raw_image,
    "JPEG called raw": call_jpeg_raw,
    "unknown mode": put("images", "mode", 7),
    "no height": put("images", "height", 0),
    "negative label": put("samples", "label", -1),
    "label of a billion": put("samples", "label", 10**9),
    "last 8 bytes lost": cut(-8),
    "last sample's entry lost": cut(-24),
    "cut in half": cut(0.5),
    "cut in the header": cut(10),
    "empty": cut(0),
    "bytes added": grow,
}


@pytest.fixture
def file(betons: Path, tmp_path: Path) -> Path:
    """A copy of a good file with its note, to be damaged."""
    return Path(shutil.copytree(betons, tmp_path, dirs_exist_ok=True)) / "train.beton"


def test_a_good_file_is_read_as_it_was_written(file):
    beton = open_beton(file)
    assert len(beton) == 37
    assert beton.classes == ("ant", "bee", "cat")
    assert set(beton.modes) == {0, 1}
    assert all(beton.complaint(index) is None for index in range(37))
    sidecar_path(file).unlink()
    assert open_beton(file).classes == ("0", "1", "2")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mutated_file_is_refused_without_any_checksum(file, mutation):
    sidecar_path(file).unlink()
    parts = Parts(file.read_bytes())
    MUTATIONS[mutation](parts)
    file.write_bytes(parts.data.tobytes())
    with pytest.raises(NotReadyError) as refusal:
        open_beton(file)
    assert str(file) in str(refusal.value)


def flip(file: Path, place: int, bit: int) -> None:
    """Flip one bit of a file."""
    with file.open("r+b") as handle:
        handle.seek(place)
        byte = handle.read(1)[0]
        handle.seek(place)
        handle.write(bytes([byte ^ 1 << bit]))


def test_any_changed_byte_of_the_description_is_refused_with_the_note(file):
    parts, rng = Parts(file.read_bytes()), np.random.default_rng(0)
    table, end = int(parts.header["table_ptr"][0]), METADATA_START + parts.samples.nbytes
    description = [*range(end), *range(table, len(parts.data))]
    for place in rng.choice(description, 200).tolist():
        bit = int(rng.integers(8))
        flip(file, place, bit)
        with pytest.raises(NotReadyError):
            open_beton(file)
        flip(file, place, bit)


def test_any_changed_byte_of_an_image_is_reported_for_that_image_alone(file):
    beton = open_beton(file)
    rng = np.random.default_rng(0)
    for index in range(len(beton)):
        place = int(beton.starts[index] + rng.integers(beton.lengths[index]))
        flip(file, place, 3)
        damaged = open_beton(file)
        assert [at for at in range(len(damaged)) if damaged.complaint(at)] == [index]
        flip(file, place, 3)


def test_a_jpeg_of_another_size_than_the_metadata_is_reported_without_the_note(file):
    sidecar_path(file).unlink()
    parts = Parts(file.read_bytes())
    index = parts.first(0)
    parts.images["height"][index] += 1
    file.write_bytes(parts.data.tobytes())
    assert "another size" in open_beton(file).complaint(index)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"classes": 3}', "[" * 100_000, "\xff"])
def test_a_note_that_makes_no_sense_is_refused(file, text):
    sidecar_path(file).write_text(text, encoding="latin-1")
    with pytest.raises(NotReadyError, match=r"train\.beton\.json"):
        open_beton(file)


def test_the_note_of_another_file_is_refused(file):
    shutil.copy(file.with_name("val.beton.json"), sidecar_path(file))
    with pytest.raises(NotReadyError, match="does not match its sidecar"):
        open_beton(file)


def test_a_file_that_changes_after_it_was_opened_is_reported(file):
    beton = open_beton(file)
    os.truncate(file, METADATA_START)
    assert beton.complaint(0) == "the file was cut short after it was opened"
    file.unlink()
    assert beton.complaint(0) == "the file cannot be read: No such file or directory"
    os.mkfifo(file)
    assert beton.complaint(0) == "the file cannot be read: Not a regular file"


def test_only_a_regular_file_of_possible_size_is_opened(file):
    parts = Parts(file.read_bytes())
    parts.header["num_samples"] = 1 << 40
    file.write_bytes(parts.data.tobytes())
    with pytest.raises(NotReadyError, match="the limit is"):
        open_beton(file)
    file.unlink()
    with pytest.raises(NotReadyError, match="No such file"):
        open_beton(file)
    os.mkfifo(file)
    with pytest.raises(NotReadyError, match="Not a regular file"):
        open_beton(file)
