"""Output files: a command replaces an earlier page, and no other file."""

from pathlib import Path

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.command_line.output_files import check_output_file
from resnet_recipes.report.page import REPORT_HEAD
from tests.shared.run_folders import create_run_folder


@pytest.mark.parametrize(
    "command",
    [
        "ls --csv notes",
        "runs --csv notes",
        "compare first second --csv notes",
        "diff mild hot --csv notes",
        "estimate mild batch.size=1 --csv notes",
        "eval x --csv notes",
        "eval first --png notes",
    ],
)
def test_output_never_overwrites_a_file_of_the_user(command, run_command):
    for name in ("first", "second"):
        create_run_folder(Path("runs"), name)
    end = command[-9:-6]
    notes = Path(f"notes.{end}")
    notes.write_text("notes\n")
    message = run_command(f"resnet-recipes {command}.{end}", 2).err
    assert f"--{end} notes.{end} already exists, and nothing is overwritten\n" in message
    assert f"use:   --{end} notes2.{end}\n" in message
    assert notes.read_text() == "notes\n"


def test_table_never_overwrites_an_earlier_table(run_command):
    assert "saved a.csv" in run_command("resnet-recipes ls --csv a.csv").err
    assert "--csv a.csv already exists" in run_command("resnet-recipes ls --csv a.csv", 2).err


def test_unreadable_page_is_not_overwritten(monkeypatch):
    Path("a.html").write_text(REPORT_HEAD)
    check_output_file("--out", "a.html", ".html")

    def fail(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(RecipeError, match="already exists"):
        check_output_file("--out", "a.html", ".html")
