"""Untrusted run folders.

Each gives one table row or one message, and never aborts a command.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from resnet_recipes import cli
from tests.shared.disk_faults import create_special_file
from tests.shared.run_folders import create_run_folder

pytestmark = pytest.mark.timeout(30)  # opening a FIFO would block


def write_content(text: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(text)


#: Functions that make a file of a run folder hostile.
FAULTS: dict[str, Callable[[Path], object]] = {
    kind: lambda path, kind=kind: create_special_file(path, kind)
    for kind in ("fifo", "folder", "device", "sparse", "nowhere")
} | {
    "digits": write_content(b'{"epochs": %s}' % (b"1" * 400)),
    "infinite": write_content(b'{"epochs": Infinity, "ema_top1_percent": 1e999}'),
    "nan": write_content(b'{"training_seconds": NaN}'),
    "brackets": write_content(b"[" * 30_000),
    "deep": write_content(b'{"a":' * 900 + b"1" + b"}" * 900),
    "text": write_content(b'{"epochs": "9", "recipe": ["a"], "training_seconds": {}}'),
    "facts": write_content(b'{"train_examples": 9, "eval_digest": [], "classes": 5}'),
    "bytes": write_content(b"\xff\xfe\x00\x80" * 9),
}


def create_faulty_run(root: Path, name: str, file: str, fault: str) -> Path:
    """Create a run with a hostile file; it is the best run, so most of its files are read."""
    folder = create_run_folder(root, name, top1=80.0)
    (folder / file).unlink(missing_ok=True)
    FAULTS[fault](folder / file)
    return folder


#: Faults of files whose values are not read.
UNREADABLE_FAULTS = ("fifo", "sparse", "deep", "bytes")
#: The faults for each file.
FAULTS_OF_FILES = dict.fromkeys(("summary.json", "config.yaml", "metrics.jsonl"), tuple(FAULTS))
FAULTS_OF_FILES |= dict.fromkeys(("overrides.txt", "env.json", "command.txt"), UNREADABLE_FAULTS)
FAULTS_OF_FILES["data.json"] = (*UNREADABLE_FAULTS, "facts")


@pytest.mark.parametrize(("file", "faults"), FAULTS_OF_FILES.items())
def test_damaged_run_folders_are_listed_and_rejected(file, faults, tmp_path, run_command, capsys):
    runs = tmp_path / "runs"
    good = create_run_folder(runs, "good", top1=76.54)
    bad = [create_faulty_run(runs, f"bad-{fault}", file, fault) for fault in faults]
    out = run_command(f"resnet-recipes runs {runs}").out
    table = [line for line in out.splitlines() if line and not line.startswith((" ", "all runs"))]
    names = sorted(path.name for path in (*bad, good))
    assert sorted(line.split()[0] for line in table[1:]) == names
    assert "76.54%" in out
    run_command(f"resnet-recipes report {runs} --out {tmp_path}/page.html")
    page = (tmp_path / "page.html").read_text()
    assert all(name in page for name in (*names, "76.54"))
    for one in bad:
        for line in (f"watch {one} --once", f"compare {one} {good}", f"diff {one} mild"):
            assert cli.main(line.split()) in (0, 2, 3)
            streams = capsys.readouterr()
            assert streams.out or one.name in streams.err
        assert cli.train(["--resume", str(one)]) in (0, 2, 3)
        assert capsys.readouterr().err


@pytest.mark.parametrize("file", ["exit.json", "provenance.json", "metrics.jsonl"])
def test_runs_reports_special_file_of_failed_run(file, tmp_path, run_command):
    path = create_run_folder(tmp_path, "bad", state="failed") / file
    path.unlink()
    create_special_file(path, "fifo")
    output = run_command(f"resnet-recipes runs {tmp_path}").out
    assert f"{file} cannot be read: Not a regular file" in output


def test_run_without_its_recipe_is_unreadable(tmp_path, run_command):
    (create_run_folder(tmp_path, "bad") / "config.yaml").unlink()
    assert (
        "config.yaml does not exist"
        in run_command(f"resnet-recipes runs {tmp_path} state=unreadable").out
    )


@pytest.mark.parametrize("text", [None, "", "name: [", "optimizer: {lr: abc}"])
@pytest.mark.parametrize("command", ["resnet-recipes diff mild", "resnet-train --resume"])
def test_damaged_recipe_of_a_run_is_not_ready(command, text, tmp_path, run_command):
    config = create_run_folder(tmp_path, "bad") / "config.yaml"
    if text is None:
        config.unlink()
        command = "resnet-recipes diff mild"
    else:
        config.write_text(text)
    message = run_command(f"{command} {tmp_path}/bad", 3).err
    assert "config.yaml" in message
    assert "[mild]" not in message
    if not text:
        assert ("config.yaml does not exist\n" in message) == (text is None)
        assert "hint:  restore this file of the run from a copy, or start a new run" in message


def test_fifo_instead_of_lock_never_blocks_runs(tmp_path, run_command):
    os.mkfifo(create_run_folder(tmp_path, "a", state="killed") / "lock")
    assert "killed" in run_command(f"resnet-recipes runs {tmp_path}").out
