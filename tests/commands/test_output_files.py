"""Output files: a command replaces an earlier page, and no other file."""

from pathlib import Path

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.command_line.output_files import check_output_file
from resnet_recipes.report.page import REPORT_HEAD
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


def test_table_never_overwrites_an_earlier_table(run_command):
    assert "saved a.csv" in run_command("resnet-recipes ls --csv a.csv").err
    assert "--csv a.csv already exists" in run_command("resnet-recipes ls --csv a.csv", 2).err


def test_plot_never_overwrites_a_picture(run_command):
    Path("photo.png").write_bytes(b"\x89PNG")
    message = run_command("resnet-recipes eval first --png photo.png", 2).err
    assert "--png photo.png already exists, and nothing is overwritten" in message


def test_unreadable_page_is_not_overwritten(monkeypatch):
    Path("a.html").write_text(REPORT_HEAD)
    check_output_file("--out", "a.html")

    def fail(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(RecipeError, match="already exists"):
        check_output_file("--out", "a.html")
