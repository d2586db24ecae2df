"""Tables, and output files, which may be links or devices."""

import os

import pytest

from resnet_recipes.base.errors import Note, NotReadyError
from resnet_recipes.base.text import Snippet, format_facts
from resnet_recipes.command_line.output_files import check_output_file
from resnet_recipes.command_line.printing import format_table, open_output, say

ROWS = [
    {"NAME": "first", "TIME": "3:50", "TOP-1": "70.00%", "STATE": "finished"},
    {"NAME": "b", "TIME": "-", "TOP-1": "-", "STATE": "failed"},
]


def test_format_table_aligns_numbers_right_and_text_left():
    assert format_table(ROWS) == [
        "NAME   TIME   TOP-1  STATE",
        "first  3:50  70.00%  finished",
        "b         -       -  failed",
    ]


def test_format_table_aligns_amounts_below_a_cent_right():
    assert format_table([{"COST": text} for text in ("$12.00", "<$0.01")]) == [
        "  COST",
        "$12.00",
        "<$0.01",
    ]


def test_say_wraps_all_but_advice_at_terminal_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    say("  images that cannot be read", Snippet("      try:   a command to be copied"))
    expected = "  images that cannot\n      be read\n      try:   a command to be copied\n"
    assert capsys.readouterr().err == expected


def test_say_keeps_advice_in_rows_on_one_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    rows = Note("it is slow", "a=1 b=2 c=3 d=4 e=5").list_rows()
    say(*format_facts(rows, 20, 6))
    assert capsys.readouterr().err == "note  it is slow\nuse   a=1 b=2 c=3 d=4 e=5\n"


def test_format_table_drops_columns_in_order_until_fitting():
    assert format_table(ROWS, ("TIME", "STATE"), 24)[0] == "NAME    TOP-1  STATE"
    assert format_table(ROWS, ("TIME", "STATE"), 23)[0] == "NAME    TOP-1  STATE"
    assert format_table(ROWS, ("TIME", "STATE"), 22) == [
        "NAME    TOP-1",
        "first  70.00%",
        "b           -",
    ]
    assert format_table(ROWS, ("COST", "TIME"), 5)[0] == "NAME    TOP-1  STATE"


def test_table_without_width_uses_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "23")
    assert "TIME" not in format_table(ROWS, ("TIME",))[0]
    monkeypatch.setenv("COLUMNS", "80")
    assert "TIME" in format_table(ROWS, ("TIME",))[0]


def test_open_output_reports_the_complete_file(tmp_path, capsys):
    with open_output("--csv", str(tmp_path / "a.csv")) as file:
        file.write(b"new")
        assert capsys.readouterr().err == ""
    assert capsys.readouterr().err == f"saved {tmp_path}/a.csv\n"


def test_open_output_keeps_a_symbolic_link(tmp_path):
    (tmp_path / "link").symlink_to("file")
    with open_output("--csv", str(tmp_path / "link")) as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_open_output_deletes_leftover_of_killed_command(tmp_path):
    left, other = (tmp_path / f"{name}.{16 * 'f'}.part" for name in ("a.csv", "b.csv"))
    left.touch()
    other.touch()
    with open_output("--csv", str(tmp_path / "a.csv")) as file:
        file.write(b"new")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a.csv", other]


def test_open_output_writes_to_an_open_pipe(tmp_path):
    reader, writer = os.pipe()
    check_output_file("--csv", f"/dev/fd/{writer}", ".csv")
    with open_output("--csv", f"/dev/fd/{writer}") as file:
        file.write(b"row")
    assert os.read(reader, 9) == b"row"


def test_open_output_rejects_a_fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with (
        pytest.raises(NotReadyError, match=r"--csv=.*fifo cannot be written: Not a regular file"),
        open_output("--csv", str(tmp_path / "fifo")),
    ):
        pass


def test_say_escapes_control_characters(capsys):
    say("resuming runs/\x1b[2J\nand\u202e")
    assert capsys.readouterr().err == "resuming runs/\\x1b[2J\nand\\u202e\n"
