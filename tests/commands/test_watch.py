"""The output of `resnet-recipes watch`."""

import fcntl
import json
from pathlib import Path

import pytest
from rich.console import Console

from resnet_recipes.commands import watch
from tests.shared.run_folders import create_run_folder
from tests.shared.tables import parse_values


def test_watch_shows_progress_with_the_time_left(tmp_path, run_command):
    folder = create_run_folder(tmp_path, "mine", state="killed", epochs=9.0)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        out = run_command(f"resnet-recipes watch {folder} --once").out
    assert "mine: running, epoch 4.00 of 9" in out
    assert "top-1 70.00%   best 70.00% at epoch 4.00\n" in out
    assert "about 4:50 left, with evaluations" in out


def test_watch_prints_evaluations_to_a_pipe(tmp_path, monkeypatch, run_command):
    folder = create_run_folder(tmp_path, "mine", state="killed")
    fcntl.flock(lock := (folder / "lock").open("w"), fcntl.LOCK_EX)

    def sleep(_: float) -> None:
        text = (folder / "metrics.jsonl").read_text()
        last = json.loads(text.splitlines()[-1]) | {"epoch": 5.0, "ema_top1_percent": 72.5}
        (folder / "metrics.jsonl").write_text(text + json.dumps(last) + "\n")
        lock.close()

    monkeypatch.setattr(watch.time, "sleep", sleep)
    out = run_command(f"resnet-recipes watch {folder}").out
    assert out.splitlines()[:2] == ["epoch=4 top1=70.00", "epoch=5 top1=72.50"]


def test_watch_of_stopped_run_prints_resume_command(tmp_path, run_command):
    folder = create_run_folder(tmp_path, "mine", state="stopped")
    for flag in ("", " --once"):
        out = run_command(f"resnet-recipes watch {folder}{flag}").out
        assert out.splitlines()[-1] == f"resume: resnet-train --resume {folder}"


def test_stop_alone_suggests_the_last_run(run_command):
    folder = create_run_folder(Path("runs"), "mine", state="killed")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "try:   resnet-recipes stop last" in run_command("resnet-recipes stop", 2).err


@pytest.mark.parametrize(
    ("losses", "width", "curve"),
    parse_values("""
[8.0, 4.5, 1.0] | 60 | 8 to 1   \u2588\u2585\u2581
[8.0, 8.0, 5.0, 4.0, 0.0, 2.0] | 17 | 8 to 0   \u2588\u2585\u2582
[2.0, 2.0, null, 2.0] | 60 | 2 to 2   \u2581\u2581\u2581
[8.0, 1.0] | 5 | 8 to 1   \u2585
[8.0] | 60 |
"""),
)
def test_watch_draws_the_losses_on_one_line(losses, width, curve):
    """A narrow terminal gets means of two losses."""
    records = [{"kind": "step", "loss": loss} for loss in losses]
    assert watch.draw_curve(records, width) == (f"loss {curve}" if curve else "")


def test_watch_escapes_control_characters_in_names(tmp_path):
    record = watch.RunRecord(folder=tmp_path / "a\x1b[2J", state="failed", reason="b\u202e")
    with (console := Console(width=60)).capture() as capture:
        console.print(watch.draw_screen(record, [], 60))
    assert "a\\x1b[2J: failed" in capture.get()
    assert "b\\u202e" in capture.get()
    assert "\x1b[2J" not in capture.get()
