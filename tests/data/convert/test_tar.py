"""A tar file yields all of its files, or is rejected."""

import gc
import io
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from resnet_recipes.data.convert.tar import Member, iterate_members

NAMES = [f"{index}.{suffix}" for index in range(20) for suffix in ("jpg", "cls")]


def write_archive(path: Path, names: list[str] = NAMES, form: int = tarfile.USTAR_FORMAT) -> Path:
    """Write files of 700 bytes; each contains its number."""
    with tarfile.open(path, "w", format=form) as file:
        for number, name in enumerate(names):
            one = tarfile.TarInfo(name)
            one.size = 700
            file.addfile(one, io.BytesIO(b"%03d" % number + bytes(697)))
    return path


def find_header(path: Path, number: int) -> int:
    with tarfile.open(path) as file:
        return file.getmembers()[number].offset


def read_members(path: Path) -> list[tuple[str, int]]:
    whole = path.read_bytes()
    return [(m.name, int(whole[m.offset : m.offset + 3])) for m in iterate_members(path)]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_iterate_members_lists_files_of_every_format(tmp_path, form):
    names = [f"{'d' * 60}/{'e' * length}.jpg" for length in (1, 90)]
    if form != tarfile.USTAR_FORMAT:
        names += [f"{'d' * 200}/{'e' * 150}.jpg", "\u00e9\udcff.jpg"]
    assert read_members(write_archive(tmp_path / "a.tar", names, form)) == [
        (name, number) for number, name in enumerate(names)
    ]


def test_iterate_members_keeps_no_header_in_memory(tmp_path):
    path = write_archive(tmp_path / "a.tar")
    members = iterate_members(path)
    for _ in NAMES:
        next(members)
    assert sum(type(entry) is tarfile.TarInfo for entry in gc.get_objects()) < len(NAMES)


def test_iterate_members_reads_long_headers_of_every_file(tmp_path):
    names = [f"{number}{'d' * 9000}.jpg" for number in range(3)]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert [
            name for name, _ in read_members(write_archive(tmp_path / "a.tar", names, form))
        ] == names


def change_size(path: Path, size: bytes) -> None:
    """Change the size in the 31st header, and update its checksum."""
    content = bytearray(path.read_bytes())
    offset = find_header(path, 30)
    content[offset + 124 : offset + 136] = size
    content[offset + 148 : offset + 156] = b" " * 8
    content[offset + 148 : offset + 156] = b"%06o\0 " % sum(content[offset : offset + 512])
    path.write_bytes(content)


def append_member(path: Path, kind: bytes) -> None:
    with tarfile.open(path, "a") as file:
        one = tarfile.TarInfo("odd.jpg")
        one.type = kind
        one.linkname = NAMES[0]
        file.addfile(one)


def insert_headers(path: Path, text: bytes, times: int = 1, size: int = 0) -> None:
    """Insert extended headers at the start, which may claim another size."""
    one = tarfile.TarInfo("header")
    one.type = tarfile.XHDTYPE
    one.size = size or len(text)
    block = one.tobuf(tarfile.GNU_FORMAT) + text + bytes(-len(text) % 512)
    path.write_bytes(times * block + path.read_bytes())


@pytest.mark.parametrize(
    ("message", "damage"),
    [
        ("truncated at byte 46,080", lambda path: os.truncate(path, find_header(path, 30))),
        ("truncated at byte 46,080", lambda path: os.truncate(path, find_header(path, 30) + 99)),
        ("truncated", lambda path: os.truncate(path, find_header(path, 30) + 600)),
        (
            "size of 15.jpg is wrong",
            lambda path: change_size(path, b"\x80" + (1 << 80).to_bytes(11, "big")),
        ),
        ("size of 15.jpg is wrong", lambda path: change_size(path, b"\xff" * 11 + b"\0")),
        ("size of 15.jpg is wrong", lambda path: change_size(path, b"7" * 11 + b"\0")),
        ("continues after its end marker", lambda path: path.write_bytes(path.read_bytes() * 2)),
        ("odd.jpg is a link, a sparse file", lambda path: append_member(path, tarfile.LNKTYPE)),
        (
            "odd.jpg is a link, a sparse file",
            lambda path: append_member(path, tarfile.GNUTYPE_SPARSE),
        ),
        ("header at byte 0 is damaged", lambda path: insert_headers(path, b"0 path=\n")),
        ("header at byte 0 is damaged", lambda path: insert_headers(path, b"12 path=ab\n", 5000)),
        ("longer than 16,384 bytes", lambda path: insert_headers(path, b"1" * 20_000)),
        ("longer than 16,384 bytes", lambda path: insert_headers(path, b"12 path=ab\n", 17)),
        ("longer than 16,384 bytes", lambda path: insert_headers(path, b"", size=1 << 60)),
        ("Not a regular file", lambda path: path.unlink() or os.mkfifo(path)),
    ],
)
def test_iterate_members_rejects_incomplete_archive(
    tmp_path, message, damage: Callable[[Path], object]
):
    path = write_archive(tmp_path / "a.tar")
    damage(path)
    with pytest.raises((ValueError, OSError), match=message):
        list(iterate_members(path))


def test_iterate_members_misses_no_file_after_changed_header(tmp_path):
    path = write_archive(tmp_path / "a.tar")
    rng = random.Random(0)
    whole = path.read_bytes()
    expected = read_members(path)
    for _ in range(300):
        offset = find_header(path, 0) + 512 * 3 * rng.randrange(len(NAMES)) + rng.randrange(512)
        content = bytearray(whole)
        content[offset] ^= 1 << rng.randrange(8)
        (tmp_path / "b.tar").write_bytes(content)
        try:
            members: list[Member] | list = read_members(tmp_path / "b.tar")
        except ValueError:
            continue
        assert members == expected, offset
