"""Untrusted tensor files.

Nothing in them may run, and each invalid file is rejected with one sentence.
"""

import contextlib
import functools
import io
import os
import pickle
import pickletools
import subprocess
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from resnet_recipes.network import archive
from resnet_recipes.network.archive import ArchiveError
from resnet_recipes.network.weights import read_weights


class Call:
    """Pickles as a call of `function` with `arguments`."""

    def __init__(self, function: Callable, *arguments: object):
        self.reduced = (function, arguments)

    def __reduce__(self) -> tuple:
        return self.reduced


def write_torch_file(
    path: Path, pickled: bytes, compression: int = zipfile.ZIP_STORED, **extra: bytes
) -> Path:
    """Write an archive in the format of torch.save around a pickle."""
    with zipfile.ZipFile(path, "w", compression) as zipped:
        entries = {
            "data.pkl": pickled,
            "byteorder": b"little",
            "data/0": bytes(64),
            "version": b"3\n",
            **extra,
        }
        for name, content in entries.items():
            zipped.writestr(f"archive/{name}", content)
    return path


def make_touching_pickles(marker: Path) -> dict[str, bytes]:
    """Return, by name, pickles that create `marker` when loaded without checks."""
    code = f"open({str(marker)!r}, 'w').close()"
    inner = io.BytesIO()
    torch.save({"x": Call(eval, code)}, inner)
    opened = functools.partial(os.open, str(marker))
    values = {
        "os.system": {"w": Call(os.system, f"touch {marker}")},
        "eval": {"w": Call(eval, code)},
        "exec": Call(exec, code),
        "open": {"w": Call(open, str(marker), "w")},
        "subprocess": {"w": Call(subprocess.call, ["touch", str(marker)])},
        "partial": Call(functools.reduce, opened, [os.O_CREAT] * 2),
        "nested torch storage": {"w": Call(torch.storage._load_from_bytes, inner.getvalue())},
        "key": {Call(eval, code): 1},
        "ordered dictionary": OrderedDict(w=Call(exec, code)),
    }
    return {name: pickle.dumps(value, protocol=2) for name, value in values.items()} | {
        "protocol 4": pickle.dumps(values["eval"], protocol=4),
        "protocol 0": pickle.dumps(values["eval"], protocol=0),
        "instance opcode": f"(S{code!r}\nibuiltins\neval\n.".encode(),
    }


PAYLOADS = tuple(make_touching_pickles(Path("marker")))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_pickle_with_code_is_rejected_and_not_run(payload, tmp_path):
    marker = tmp_path / "marker"
    pickled = make_touching_pickles(marker)[payload]
    path = write_torch_file(tmp_path / "weights.pt", pickled)
    with pytest.raises(ArchiveError, match="may run code"):
        archive.read(path)
    assert not marker.exists()
    with contextlib.suppress(Exception):
        pickle.loads(pickled)
    assert marker.exists()  # it runs without the check


@pytest.mark.parametrize(
    ("name", "hint"),
    [("timm.models.resnet ResNet", "state_dict()"), ("ultralytics.nn.tasks Model", "Ultralytics")],
)
def test_complete_network_is_rejected_with_hint(name, hint, tmp_path):
    module, name = name.split()
    path = write_torch_file(tmp_path / "weights.pt", f"c{module}\n{name}\n.".encode())
    with pytest.raises(ArchiveError) as caught:
        archive.read(path)
    assert hint in caught.value.fix[0]


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("position", range(1, 5))
def test_old_format_code_is_rejected_and_not_run(payload, position, tmp_path):
    marker = tmp_path / "marker"
    path = tmp_path / "old.pt"
    torch.save({"w": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    stream = io.BytesIO(path.read_bytes())
    pickles = []
    for _ in range(5):
        start = stream.tell()
        list(pickletools.genops(stream))
        pickles.append(stream.getvalue()[start : stream.tell()])
    pickles[position] = make_touching_pickles(marker)[payload]
    path.write_bytes(b"".join(pickles) + stream.read())
    with pytest.raises(ArchiveError, match="may run code"):
        archive.read(path)
    assert not marker.exists()


def test_old_format_reads_like_the_new_format(tmp_path):
    path = tmp_path / "old.pt"
    state = {"a.weight": torch.randn(3, 4), "epoch": 3}
    state |= {"half": torch.ones(2).half(), "view": state["a.weight"].T[1:]}
    torch.save({"state_dict": state}, path, _use_new_zipfile_serialization=False)
    read = archive.read(path)["state_dict"]
    assert read.keys() == state.keys()
    assert read["epoch"] == 3
    for name in ("a.weight", "half", "view"):
        assert torch.equal(read[name], state[name])
        assert read[name].dtype == state[name].dtype


def test_old_format_cut_or_overlong_is_rejected(tmp_path):
    path = tmp_path / "old.pt"
    whole = tmp_path / "whole.pt"
    torch.save({"w": torch.ones(5000)}, whole, _use_new_zipfile_serialization=False)
    content = whole.read_bytes()
    for size in (15, 16, 30, 100, 200, 300, 400, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ArchiveError):
            archive.read(path)
    claimed = content.replace(b"M\x88\x13", b"\x8a\x06\0\0\0\0\0\x01")  # 5,000 becomes 2 ** 40
    assert claimed != content
    path.write_bytes(claimed)
    with pytest.raises(ArchiveError):
        archive.read(path)
    with tarfile.open(path, "w") as archived:
        archived.addfile(tarfile.TarInfo("storages"))
    with pytest.raises(ArchiveError, match=r"not a file that torch\.save wrote"):
        archive.read(path)


def test_zip_bomb_is_rejected_before_unpacking(tmp_path):
    zeros = bytes(50_000_000)
    deflated = write_torch_file(
        tmp_path / "deflated.pt",
        pickle.dumps({}, protocol=2),
        zipfile.ZIP_DEFLATED,
        **{"data/1": zeros},
    )
    assert deflated.stat().st_size < 100_000
    with pytest.raises(ArchiveError, match="bomb"):
        archive.read(deflated)

    huge = tmp_path / "huge.pt"
    torch.save({"w": torch.zeros(1).expand(200_000, 1_000_000)}, huge)
    with pytest.raises(ArchiveError, match="bytes"):
        archive.read(huge)

    allocation = write_torch_file(
        tmp_path / "allocation.pt", pickle.dumps({"w": Call(bytearray, 10**12)}, protocol=2)
    )
    with pytest.raises(ArchiveError, match="bytearray"):
        archive.read(allocation)


@pytest.mark.parametrize(
    ("pickled", "message"),
    [
        (b"\x80\x02]" + b"(K\x01e" * 200_000 + b".", "too long"),
        (b"\x80\x02]" + b"0" * (9 << 20) + b".", "reasonable size"),
        (b"\x80\x02}(" + b"\x8a\x09" + b"\xff" * 8 + b"\x01N" + b"u.", "more than 64 bits"),
    ],
)
def test_slow_pickle_is_rejected_early(pickled, message, tmp_path):
    with pytest.raises(ArchiveError, match=message):
        archive.read(write_torch_file(tmp_path / "long.pt", pickled))


def test_truncated_file_suggests_another_copy(tmp_path):
    path = tmp_path / "w.pth"
    torch.save({"a": torch.zeros(1000)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ArchiveError, match="it is damaged or incomplete") as caught:
        archive.read(path)
    assert "copy it again, or use another file" in caught.value.fix[0]


def test_damaged_file_is_rejected_without_library_text(tmp_path):
    path = tmp_path / "w.pth"
    path.write_bytes(b"PK\x03\x04" + bytes(40))
    with pytest.raises(ArchiveError, match=r"^it is damaged or incomplete$"):
        archive.read(path)


def test_empty_file_is_rejected_as_empty(tmp_path):
    (tmp_path / "w.pth").touch()
    with pytest.raises(ArchiveError, match="it is empty"):
        archive.read(tmp_path / "w.pth")


def test_long_directory_is_rejected_before_reading(tmp_path):
    path = tmp_path / "many.pt"
    with zipfile.ZipFile(path, "w") as zipped:
        for number in range(2_000):
            zipped.writestr(f"archive/{number:05}{'a' * 5_000}", b"")
    with pytest.raises(ArchiveError, match="directory is too long"):
        archive.read(path)


def test_safetensors_file_beyond_20000_entries_is_rejected(tmp_path):
    entry = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    header = "{" + ",".join(f'"{number}":{entry}' for number in range(20_001)) + "}"
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    with pytest.raises(ValueError, match="more than 20,000 entries"):
        read_weights(path)


def test_archive_beyond_20000_entries_is_rejected(tmp_path):
    files = {f"data/{number}": b"" for number in range(20_000)}
    path = write_torch_file(tmp_path / "w.pt", pickle.dumps({}, protocol=2), **files)
    with pytest.raises(ArchiveError, match="too many or duplicate entries"):
        archive.read(path)


@pytest.mark.parametrize(
    "header",
    [b"[" * 30_000, b"[]", b"[1,2]", b"7", b"{", b"\xff", b'{"__metadata__":{"a":NaN}}', b""],
)
def test_safetensors_header_without_object_is_rejected(header, tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match=r"safetensors|its header is not a JSON object"):
        read_weights(path)
    path.write_bytes(b"\xff" * 8 + header)
    with pytest.raises(ValueError, match=r"safetensors|its header is not a JSON object"):
        read_weights(path)


@pytest.mark.timeout(30)
def test_archive_visits_a_list_containing_itself_once(tmp_path):
    path = tmp_path / "lists.pt"
    cyclic = []
    shared = [0.5]
    cyclic.append(cyclic)
    for _ in range(40):
        shared = [shared] * 10
    torch.save({"cyclic": cyclic, "shared": shared}, path)
    state = archive.read(path)
    assert state["cyclic"][0] is state["cyclic"]


def test_read_rejects_torchscript_and_lists(tmp_path):
    script = write_torch_file(
        tmp_path / "script.pt", pickle.dumps({}, protocol=2), **{"constants.pkl": pickle.dumps(())}
    )
    with pytest.raises(ArchiveError, match=r"exactly one data\.pkl"):
        archive.read(script)
    listed = tmp_path / "list.pt"
    torch.save([1, 2], listed)
    with pytest.raises(ArchiveError, match="contains a list"):
        archive.read(listed)
    with pytest.raises(FileNotFoundError):
        archive.read(tmp_path / "missing.pt")
