"""Untrusted files are rejected immediately unless they are regular, of sane size and plain."""

import os
import tracemalloc

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.reading import MAX_DEPTH, open_regular, parse_json, read_bytes, read_json
from tests.shared.disk_faults import create_special_file
from tests.shared.tables import parse_rows


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("kind", "reason"),
    parse_rows(
        """
fifo | Not a regular file
folder | Is a directory
socket | No such device
device | Not a regular file
sparse | Larger than 100 bytes
nowhere | No such file
loop | Too many levels of symbolic links
"""
    ),
)
def test_read_bytes_rejects_special_and_large_files(kind, reason, tmp_path):
    with pytest.raises(NotReadyError, match=rf"cannot be read: {reason}"):
        read_bytes(create_special_file(tmp_path / "file", kind), 100)


def test_read_bytes_of_small_file_needs_little_memory(tmp_path):
    (tmp_path / "small").write_bytes(b"four")
    tracemalloc.start()
    assert read_bytes(tmp_path / "small", 1 << 30) == b"four"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b"])
def test_read_bytes_rejects_impossible_paths(name, tmp_path):
    with pytest.raises(NotReadyError, match="cannot be read"):
        read_bytes(tmp_path / name)


def test_open_regular_closes_a_rejected_file():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(OSError, match="Not a regular file"):
            open_regular("/dev/null")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "text",
    ["1" * 400, f"-{1 << 63}1", str(1 << 64), "NaN", "[Infinity]", "-Infinity", "1e999", "-1e400"],
)
def test_non_finite_or_large_numbers_are_rejected(text):
    with pytest.raises(ValueError, match=r"is not a number|64 bits"):
        parse_json(text)


def test_json_errors_name_line_and_column():
    with pytest.raises(ValueError, match=r"^not JSON in line 2, column 6$"):
        parse_json('{"a": 1,\n"b": ')


def test_values_within_limits_match_json():
    value = {"a": [1, -(1 << 63), (1 << 64) - 1, 0.5, -0.0, None, True, "\ud800"], "b": {}}
    assert (
        parse_json(
            '{"a": [1, -9223372036854775808, 18446744073709551615, 0.5, -0.0, null, true,'
            ' "\\ud800"],'
            ' "b": {}}'
        )
        == value
    )


@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_json_depth_is_limited(bracket):
    def make_nested(depth: int) -> str:
        inner = bracket[0] if bracket == "[]" else '{"a":'
        return inner * (depth - 1) + bracket + bracket[1] * (depth - 1)

    parse_json(make_nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 900, 30_000):
        with pytest.raises(ValueError, match="more than 32 levels"):
            parse_json(make_nested(depth))


def test_json_that_is_not_an_object_is_rejected(tmp_path):
    for content in (b"[1]", b"", b"\xff", b"{", b"\x1f\x8b"):
        (tmp_path / "a.json").write_bytes(content)
        with pytest.raises(NotReadyError, match=r"a\.json cannot be read"):
            read_json(tmp_path / "a.json")


def test_absent_file_reads_as_empty_object_if_allowed(tmp_path):
    assert read_json(tmp_path / "a.json", may_be_absent=True) == {}
    (tmp_path / "a.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(NotReadyError):
        read_json(tmp_path / "a.json", may_be_absent=True)
