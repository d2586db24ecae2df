"""`resnet-recipes doctor`: topics, exit codes, and output for people and programs."""

import re
import shutil
from itertools import chain
from pathlib import Path

import pytest

from resnet_recipes import cli
from tests.shared.images import create_random_images
from tests.shared.run_folders import create_run_folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a few valid images."""
    return create_random_images(tmp_path / "images")


def test_doctor_data_without_problems_prints_no_fix(data, run_command):
    out = run_command(f"resnet-recipes doctor data {data}").out
    assert "FIX" not in out
    assert "10 images" in out


def test_doctor_suggests_to_watch_a_run(tmp_path, run_command):
    create_run_folder(tmp_path / "runs", "bees")
    for command, code in (("doctor bees", 2), ("doctor run bees", 3)):
        message = run_command(f"resnet-recipes {command}", code).err
        assert "\n      try:   resnet-recipes watch bees\n" in message


def test_doctor_decodes_images_despite_different_classes(data, run_command):
    (data / "val/pattern1").rename(data / "val/other")
    out = run_command(f"resnet-recipes doctor data {data}", 3).out
    assert "pattern1 only in train and other only in val" in out
    assert "images were decoded" in out


def test_doctor_advises_no_training_on_an_empty_folder(tmp_path, run_command):
    (tmp_path / "empty").mkdir()
    out = run_command(f"resnet-recipes doctor data {tmp_path}/empty", 3).out
    assert "has no images" in out
    assert "resnet-train" not in out


def test_doctor_data_names_unreadable_image_with_code_3(data, run_command):
    (data / "train/pattern1/0.jpg").write_bytes(b"\xff\xd8 no image")
    out = run_command(f"resnet-recipes doctor data {data}", 3).out
    assert "pattern1/0.jpg" in out
    assert re.search(r"\nwarn  (\d+) of (?!\1)\d+ images were decoded", out)
    assert "\n      hint:  add data.on_bad_image=skip to the command that trains\n" in out
    assert "\n      hint:  or replace or delete them\n" in out
    run_command(f"resnet-recipes doctor data {data} --no-images")


@pytest.mark.parametrize(("nested", "classes"), [("false", 2), ("true", 4)])
def test_doctor_data_accepts_nested_classes_of_a_run(nested, classes, tmp_path, run_command):
    root = create_random_images(tmp_path / "halves", ["ant", "bee"], train=3)
    (root / "train").rename(root / "left")
    (root / "val").rename(root / "right")
    assert "has the same folders" in run_command(f"resnet-recipes doctor data {root}", 3).out
    command = f"resnet-recipes doctor data {root} data.nested_classes={nested}"
    assert f" images in {classes} classes" in run_command(command).out


@pytest.mark.parametrize("is_terminal", [False, True])
def test_doctor_wraps_findings_only_on_a_terminal(is_terminal, data, run_command, monkeypatch):
    width = len(str(data)) + 20  # the sentence starts with the path
    monkeypatch.setenv("COLUMNS", str(width) if is_terminal else "")
    shutil.rmtree(data / "val/pattern1")
    lines = run_command(f"resnet-recipes doctor data {data}", 3).out.splitlines()
    (sentence,) = (line for line in lines if line.startswith("FIX"))
    assert (len(sentence) <= width) == is_terminal


def test_doctor_json_has_the_printed_findings(data, run_command, run_json):
    shutil.rmtree(data / "val/pattern1")
    printed = run_command(f"resnet-recipes doctor data {data}", 3).out
    report = run_json(f"resnet-recipes doctor data {data}", 3)
    assert report["exit_code"] == 3
    assert "fix" in {finding["level"] for finding in report["findings"]}
    assert all(finding["what"] in printed for finding in report["findings"])


def test_doctor_without_topic_checks_the_machine(capsys):
    """Numbers are removed, since the free memory changes."""

    def diagnose(*topic: str) -> tuple[int, list[str]]:
        code = cli.main(["doctor", *topic])
        return code, re.sub(r"[\d.]+", "", capsys.readouterr().out).splitlines()

    codes, findings = zip(*map(diagnose, ("native", "gpu", "run")), strict=True)
    assert diagnose() == (max(codes), list(chain(*findings)))
