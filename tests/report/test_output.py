"""Standard streams drop what cannot be written, and say so afterwards."""

import os
from pathlib import Path

import pytest

from resnet_recipes.report import output
from resnet_recipes.report.output import lasting, lost_output, protect_output


@pytest.fixture
def closed_pipe() -> int:
    """The writing end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_a_closed_pipe_drops_the_text_and_is_not_reported(closed_pipe, monkeypatch):
    stream = lasting(closed_pipe, "utf-8")
    print("text" * 100_000, file=stream, flush=True)
    monkeypatch.setattr(output.sys, "stdout", stream)
    assert lost_output() == ""


def test_a_full_disk_drops_the_text_and_is_named(monkeypatch):
    with Path("/dev/full").open("w") as full:
        stream = lasting(os.dup(full.fileno()), "utf-8")
    print("text", file=stream)
    monkeypatch.setattr(output.sys, "stdout", stream)
    assert lost_output() == "No space left on device"


def test_characters_that_the_terminal_lacks_are_escaped(tmp_path):
    with (tmp_path / "text").open("w") as file:
        print("caf\u00e9 \udcff", file=lasting(file.fileno(), "ascii"))
    assert (tmp_path / "text").read_text() == "caf\\xe9 \\udcff\n"


def test_a_closed_stream_takes_no_file_that_has_its_number(monkeypatch, capfd):
    monkeypatch.setattr(output.sys, "stderr", output.sys.stderr)
    monkeypatch.setattr(output.sys, "stdout", None)
    protect_output()
    print("text")
    assert lost_output() == ""
    assert capfd.readouterr().out == ""
