"""Two processes write to one terminal, and a stream survives a closed pipe or a full disk."""

import os
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

from resnet_recipes.report.console import LiveConsole
from resnet_recipes.report.terminal import (
    DISPLAY_LINES,
    find_lost_output,
    format_interjection,
    make_lasting,
    protect_output,
)
from tests.report.terminals import TerminalStream


class Screen(TerminalStream):
    """A terminal that tracks the content of its screen."""

    def list_lines(self) -> list[str]:
        lines = [""]
        row = 0
        column = 0
        for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", self.getvalue()):
            if part == "\n":
                row += 1
                column = 0
                lines += [""] * (row + 1 - len(lines))
            elif part == "\r":
                column = 0
            elif part.endswith("A"):
                row -= int(part[2:-1])
            elif part.endswith("J"):
                lines[row:] = [lines[row][:column]]
            elif part.endswith("K"):
                lines[row] = ""
            elif not part.startswith("\x1b"):
                lines[row] = (
                    lines[row].ljust(column)[:column] + part + lines[row][column + len(part) :]
                )
                column += len(part)
        return [line.rstrip() for line in lines]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Screen:
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Screen()


def test_interjection_replaces_the_live_display(terminal):
    with Live(
        console=Console(file=terminal, highlight=False), auto_refresh=False, transient=True
    ) as live:
        live.update(Text("epoch 1\nloss 3.1"), refresh=True)
        assert terminal.list_lines() == ["epoch 1", "loss 3.1"]
        print(format_interjection("stopping"), file=terminal)
        live.update(Text("epoch 2\nloss 2.7"), refresh=True)
        assert terminal.list_lines() == ["stopping", "epoch 2", "loss 2.7"]
    assert terminal.list_lines()[0] == "stopping"
    assert "".join(terminal.list_lines()[1:]) == ""


def test_live_display_has_the_expected_height(terminal, facts):
    console = LiveConsole(facts, terminal, terminal)
    console.begin(0)
    assert len(terminal.list_lines()) == DISPLAY_LINES
    console.close()


def test_interjection_escapes_control_characters():
    assert "\x1b[2J" not in format_interjection("runs/\x1b[2J")


def test_closed_pipe_drops_text_without_report(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    stream = make_lasting(writer, "utf-8")
    print("text" * 100_000, file=stream, flush=True)
    monkeypatch.setattr(sys, "stdout", stream)
    assert find_lost_output() == ""


def test_full_disk_drops_text_and_is_named(monkeypatch):
    with Path("/dev/full").open("w") as full:
        stream = make_lasting(os.dup(full.fileno()), "utf-8")
    print("text", file=stream)
    monkeypatch.setattr(sys, "stdout", stream)
    assert find_lost_output() == "No space left on device"


def test_terminal_escapes_characters_missing_in_its_encoding(tmp_path):
    with (tmp_path / "text").open("w") as file:
        print("caf\u00e9 \udcff", file=make_lasting(file.fileno(), "ascii"))
    assert (tmp_path / "text").read_text() == "caf\\xe9 \\udcff\n"


def test_closed_stream_ignores_file_with_its_descriptor(monkeypatch, capfd):
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(sys, "stdout", None)
    protect_output()
    print("text")
    assert find_lost_output() == ""
    assert capfd.readouterr().out == ""
