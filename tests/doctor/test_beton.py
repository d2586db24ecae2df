"""Damaged samples and inconsistent .beton files are found before training."""

import shlex
import subprocess
import threading
from pathlib import Path

import pytest

from resnet_recipes.cli import main
from resnet_recipes.data import images
from resnet_recipes.data.beton import Beton, open_beton
from resnet_recipes.data.beton.sidecar import get_sidecar_path
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.doctor import Finding, get_exit_code
from resnet_recipes.doctor import beton as doctor_beton
from resnet_recipes.doctor.data import check_data
from tests.data.loaders import requires_decoder

readers = pytest.mark.parametrize(
    "reader", [pytest.param("native", marks=requires_decoder), "python"], indirect=True
)


@pytest.fixture
def beton_folder(image_folder: Path, tmp_path: Path) -> Path:
    convert(image_folder, tmp_path / "betons", ConvertOptions("jpg", workers=1), lambda *_: None)
    return tmp_path / "betons"


@pytest.fixture
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with and without the native decoder."""
    if request.param == "python":
        monkeypatch.setattr(images, "find_decoder_fault", lambda: "was not built")


def list_fixes(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "fix"]


def overwrite_sample(path: Path, index: int, offset: int, data: bytes) -> None:
    start = int(open_beton(path).starts[index])
    with path.open("r+b") as file:
        file.seek(start + offset)
        file.write(data)


@readers
def test_valid_betons_have_only_ok_findings(beton_folder, reader):
    steps = []
    findings = check_data(beton_folder, progress=lambda done, total: steps.append((done, total)))
    assert get_exit_code(findings) == 0
    assert steps == [(6, 6), (3, 3)]
    expected = "samples were read and decoded"
    assert [finding.what.partition(":")[0] for finding in findings if expected in finding.what] == [
        "train.beton",
        "val.beton",
    ]


@readers
def test_damaged_samples_are_named(beton_folder, reader):
    for index in (1, 4, 5):
        overwrite_sample(beton_folder / "train.beton", index, 300, b"\1\2\3")
    (finding,) = list_fixes(check_data(beton_folder))
    assert "3 samples of train.beton are damaged" in finding.what
    assert [path.partition(":")[0] for path in finding.paths] == [
        "sample 1",
        "sample 4",
        "sample 5",
    ]
    assert not list_fixes(check_data(beton_folder, images=False))


@pytest.mark.parametrize("name", ["train", "train.half", "val"])
def test_suggested_command_repairs_damaged_file(name, image_folder, tmp_path):
    folder = tmp_path / "my betons"
    options = ConvertOptions("jpg", max_resolution=None, levels=2, workers=1)
    convert(image_folder, folder, options, lambda *_: None)
    intact = (folder / f"{name}.beton").read_bytes()
    overwrite_sample(folder / f"{name}.beton", 0, 300, b"\1\2\3")
    (finding,) = list_fixes(check_data(folder))
    move, command = map(shlex.split, finding.fix.split(" && "))
    subprocess.run(move, check=True)
    assert main(command[1:]) == 0
    assert (folder / f"{name}.beton").read_bytes() == intact
    assert not list_fixes(check_data(folder))


@readers
def test_samples_without_checksums_are_checked_by_decoding(beton_folder, reader):
    path = beton_folder / "train.beton"
    for index in (0, 3):
        tables = open_beton(path).sample(index).tobytes().index(b"\xff\xc4") + 5
        overwrite_sample(path, index, tables, b"\xff" * 16)
    get_sidecar_path(path).unlink()
    assert not any(open_beton(path).describe_damage(index) for index in range(6))
    (finding,) = list_fixes(check_data(path))
    assert [path.partition(":")[0] for path in finding.paths] == ["sample 0", "sample 3"]


def test_unreadable_beton_is_reported(beton_folder):
    path = beton_folder / "train.beton"
    path.write_bytes(path.read_bytes()[:-1])
    (finding,) = list_fixes(check_data(beton_folder))
    assert "damaged or truncated" in finding.what


def test_class_mismatch_is_reported_before_samples(beton_folder):
    note = get_sidecar_path(beton_folder / "val.beton")
    note.write_text(note.read_text().replace('"ant"', '"zebra"'))
    (finding,) = list_fixes(
        check_data(beton_folder, progress=lambda done, total: pytest.fail("samples were read"))
    )
    assert "val.beton differs from train.beton in its classes" in finding.what


def test_single_beton_can_be_checked(beton_folder):
    (beton_folder / "val.beton").unlink()
    (finding,) = list_fixes(check_data(beton_folder))
    assert "has no val.beton" in finding.what
    assert not list_fixes(check_data(beton_folder / "train.beton"))


@readers
def test_samples_are_read_by_several_threads(beton_folder, reader, monkeypatch):
    meeting = threading.Barrier(2, timeout=20)
    judge = doctor_beton.make_verifier

    def judge_together(beton: Beton):
        complaint = judge(beton)
        return lambda index: (meeting.wait() >= 0 and complaint(index)) or None

    monkeypatch.setattr("resnet_recipes.doctor.count_cores", lambda: 2)
    monkeypatch.setattr(doctor_beton, "make_verifier", judge_together)
    assert not list_fixes(check_data(beton_folder / "train.beton"))
