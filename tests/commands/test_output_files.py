"""Output files: a command replaces an earlier output, and no other file."""

from pathlib import Path

import pytest

from tests.shared.run_folders import create_run_folder


@pytest.mark.parametrize(
    "command",
    ["ls", "runs", "compare first second", "diff mild hot", "estimate mild batch.size=1", "eval x"],
)
def test_table_never_overwrites_a_file_of_the_user(command, run_command):
    for name in ("first", "second"):
        create_run_folder(Path("runs"), name)
    Path("notes.csv").write_text("notes\n")
    message = run_command(f"resnet-recipes {command} --csv notes.csv", 2).err
    assert "--csv notes.csv already exists, and nothing is overwritten\n" in message
    assert "use:   --csv notes2.csv\n" in message
    assert Path("notes.csv").read_text() == "notes\n"


@pytest.mark.parametrize("command", ["ls", "runs", "compare first second"])
def test_table_replaces_an_earlier_table(command, run_command):
    for name in ("first", "second"):
        create_run_folder(Path("runs"), name)
    for _ in range(2):
        assert "saved a.csv" in run_command(f"resnet-recipes {command} --csv a.csv").err


def test_plot_never_overwrites_a_picture(run_command):
    Path("photo.png").write_bytes(b"\x89PNG")
    message = run_command("resnet-recipes eval first --png photo.png", 2).err
    assert "--png photo.png already exists, and nothing is overwritten" in message


def test_unreadable_output_file_is_not_overwritten(run_command, monkeypatch):
    Path("a.csv").write_text("name,epochs,about,\n")

    def fail(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "open", fail)
    assert "already exists" in run_command("resnet-recipes ls --csv a.csv", 2).err
