"""Damaged .beton files are rejected, or their damage is reported; no wrong data is read."""

import os
import shutil
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
from resnet_recipes.data.beton.sidecar import get_sidecar_path
from tests.shared.checks import get_error
from tests.shared.disk_faults import flip_bit
from tests.shared.tables import parse_rows


class Parts:
    """The bytes of a .beton file, with its parts as writable arrays."""

    def __init__(self, data: bytes):
        self.data = np.frombuffer(data, np.uint8).copy()
        self.header = self.data[: HEADER.itemsize].view(HEADER)
        self.fields = self.data[HEADER.itemsize : METADATA_START].view(FIELD)
        end = METADATA_START + int(self.header["num_samples"][0]) * SAMPLE.itemsize
        self.samples = self.data[METADATA_START:end].view(SAMPLE)
        self.images = self.samples["image"]
        self.table = self.data[int(self.header["table_ptr"][0]) :].view(ALLOCATION)

    def find_first(self, mode: int) -> int:
        return int(np.flatnonzero(self.images["mode"] == mode)[0])


def extend_into_table(parts: Parts) -> None:
    """Extend the last sample, as a JPEG, into the table; raw images have a known length."""
    last = parts.table["ptr"].argmax()
    parts.images["mode"][last] = JPEG
    parts.table["size"][last] = parts.header["table_ptr"][0] - parts.table["ptr"][last] + 1


def share_bytes(parts: Parts) -> None:
    """Give the second sample the bytes of the first."""
    parts.images["ptr"][1] = parts.table["ptr"][1] = parts.table["ptr"][0]


def place_in_metadata(parts: Parts) -> None:
    """Place the first sample where the metadata starts."""
    parts.images["ptr"][0] = parts.table["ptr"][0] = METADATA_START


def widen_a_raw_image(parts: Parts) -> None:
    parts.images["width"][parts.find_first(1)] += 1


def call_jpeg_raw(parts: Parts) -> None:
    parts.images["mode"][parts.find_first(0)] = 1


def rename_the_second_field(parts: Parts) -> None:
    parts.fields["type_id"][1] = 255


#: Fields, and their new values: an increase or an absolute value.
NUMBERS = parse_rows(
    """
header | version | to 1
header | version | to 3
header | num_fields | to 3
header | page_size | by 1
header | page_size | to 0
header | page_size | to 4096
header | num_samples | by 1
header | num_samples | by -1
header | num_samples | to 0
header | num_samples | to 9223372036854775808
header | table_ptr | by 8
header | table_ptr | to 0
header | table_ptr | to 4611686018427387904
fields | type_id | to 3
images | ptr | by 1
images | ptr | to 9223372036854775808
images | mode | to 7
images | height | to 0
table | ptr | by 1
table | size | to 1099511627776
table | size | to 0
table | sample | to 1
samples | label | to -1
samples | label | to 1000000000
"""
)

#: Lengths of a truncated file, in bytes or as a fraction.
ENDS = (-8, -24, 0.5, 10, 0)

OTHERS = (
    extend_into_table,
    share_bytes,
    place_in_metadata,
    widen_a_raw_image,
    call_jpeg_raw,
    rename_the_second_field,
)


@pytest.fixture
def file(copied_betons: Path) -> Path:
    """A copy of a valid file with its sidecar, for tests that damage it."""
    return copied_betons / "train.beton"


def test_beton_round_trips_through_its_file(file):
    beton = open_beton(file)
    assert len(beton) == 37
    assert beton.classes == ("ant", "bee", "cat")
    assert set(beton.modes) == {0, 1}
    assert all(beton.describe_damage(index) is None for index in range(37))
    get_sidecar_path(file).unlink()
    assert open_beton(file).classes == ("0", "1", "2")


def assert_file_rejected(file: Path, content: bytes) -> None:
    get_sidecar_path(file).unlink(missing_ok=True)
    file.write_bytes(content)
    assert str(file) in str(get_error(NotReadyError, open_beton, file))


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("part", "key", "value"), NUMBERS)
def test_open_beton_rejects_wrong_number_without_checksum(file, part, key, value):
    parts = Parts(file.read_bytes())
    how, number = value.split()
    column = getattr(parts, part)[key]
    column[0] = int(number) + (int(column[0]) if how == "by" else 0)
    assert_file_rejected(file, parts.data.tobytes())


@pytest.mark.parametrize("change", OTHERS)
def test_open_beton_rejects_contradicting_parts_without_checksum(file, change):
    parts = Parts(file.read_bytes())
    change(parts)
    assert_file_rejected(file, parts.data.tobytes())


def test_open_beton_rejects_changed_length_without_checksum(file):
    content = file.read_bytes()
    for end in ENDS:
        assert_file_rejected(
            file, content[: int(len(content) * end) if isinstance(end, float) else end]
        )
    assert_file_rejected(file, content + bytes(24))
    assert_file_rejected(
        file, bytes(HEADER.itemsize) + content[HEADER.itemsize :]
    )  # the header is missing


def test_open_beton_rejects_changed_description_with_sidecar(file):
    parts = Parts(file.read_bytes())
    rng = np.random.default_rng(0)
    table = int(parts.header["table_ptr"][0])
    end = METADATA_START + parts.samples.nbytes
    description = [*range(end), *range(table, len(parts.data))]
    for offset in rng.choice(description, 200).tolist():
        bit = int(rng.integers(8))
        flip_bit(file, offset, bit)
        with pytest.raises(NotReadyError):
            open_beton(file)
        flip_bit(file, offset, bit)


def test_describe_damage_finds_image_of_flipped_bit(file):
    beton = open_beton(file)
    rng = np.random.default_rng(0)
    for index in range(len(beton)):
        offset = int(beton.starts[index] + rng.integers(beton.lengths[index]))
        flip_bit(file, offset, 3)
        damaged = open_beton(file)
        assert [at for at in range(len(damaged)) if damaged.describe_damage(at)] == [index]
        flip_bit(file, offset, 3)


def test_jpeg_size_mismatch_is_reported_without_sidecar(file):
    get_sidecar_path(file).unlink()
    parts = Parts(file.read_bytes())
    index = parts.find_first(0)
    parts.images["height"][index] += 1
    file.write_bytes(parts.data.tobytes())
    assert "its size differs" in open_beton(file).describe_damage(index)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"classes": 3}', "[" * 100_000, "\xff"])
def test_open_beton_rejects_invalid_sidecar(file, text):
    get_sidecar_path(file).write_text(text, encoding="latin-1")
    with pytest.raises(NotReadyError, match=r"train\.beton\.json") as caught:
        open_beton(file)
    assert caught.value.problems[0].corrections == (f"rm {get_sidecar_path(file)}",)
    get_sidecar_path(file).unlink()
    open_beton(file)


def test_open_beton_rejects_sidecar_of_another_file(file):
    shutil.copy(file.with_name("val.beton.json"), get_sidecar_path(file))
    with pytest.raises(NotReadyError, match="does not match its sidecar"):
        open_beton(file)


def test_file_changed_after_open_is_reported(file):
    beton = open_beton(file)
    os.truncate(file, METADATA_START)
    assert beton.describe_damage(0) == "the file was truncated after it was opened"
    file.unlink()
    assert beton.describe_damage(0) == "the file cannot be read: No such file or directory"
    os.mkfifo(file)
    assert beton.describe_damage(0) == "the file cannot be read: Not a regular file"


def test_open_beton_rejects_special_and_tiny_files(file):
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
