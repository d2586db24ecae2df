"""Read a run folder without torch."""

import fcntl
import json
import os
import shutil

import pytest

from resnet_recipes.run_folder.runs import (
    find_shared_changes,
    iterate_newest_runs,
    iterate_runs,
    read_run,
)
from tests.shared.run_folders import create_run_folder


def test_finished_run_has_accuracy_time_and_changes(tmp_path):
    run = read_run(create_run_folder(tmp_path, "a", top1=76.5))
    assert (run.state, run.recipe, run.top1_percent) == ("finished", "mild", 76.5)
    assert (run.epochs, run.epochs_done, run.minutes, run.minutes_steady_state) == (
        4,
        4,
        4,
        230 / 60,
    )
    assert (run.minutes_mlperf, run.wall_minutes) == (4.5, 5.0)
    assert run.pflops == 1250.0
    assert run.changes == ("seed=1",)
    assert not run.resumable
    assert run.cost(36.0) == pytest.approx(3.0)


def test_shown_changes_have_the_names_that_users_type(tmp_path):
    folder = create_run_folder(tmp_path, "a")
    typed = ("data.root=/d", "data.memory_pixels=0", "~methods.ema", "data.fold=1/5", "run.name=a")
    (folder / "overrides.txt").write_text("\n".join(typed))
    assert read_run(folder).shown_changes == ("data=/d", "cache=0", "~methods.ema", "data.fold=1/5")


@pytest.mark.parametrize("state", ["stopped", "failed", "killed"])
def test_unfinished_run_has_progress_and_is_resumable(state, tmp_path):
    run = read_run(create_run_folder(tmp_path, "a", state=state, epochs=9.0))
    assert (run.state, run.epochs, run.epochs_done) == (state, 9.0, 4.0)
    assert (run.top1_percent, run.minutes) == (70.0, 4.0)
    assert run.resumable
    assert run.reason == ("" if state == "killed" else f"it {state}")


@pytest.mark.parametrize(
    ("code", "message", "line"),
    [
        (130, "Ctrl-C", "Ctrl-C"),
        (75, "SIGTERM", "SIGTERM"),
        (75, "launch.max_wall=1h is about to expire", "launch.max_wall=1h is about to expire"),
        (1, "two\nlines", "two"),
        (75, "", ""),
    ],
)
def test_shown_reason_is_the_first_line(code, message, line, tmp_path):
    folder = create_run_folder(tmp_path, "a", state="stopped")
    (folder / "exit.json").write_text(json.dumps({"code": code, "message": message}))
    assert read_run(folder).shown_reason == line


@pytest.mark.parametrize(
    ("error", "resumable", "settings"),
    [
        ("BadTrainingImageError", True, " data.on_bad_image=skip"),
        ("BadValidationImageError", False, ""),
    ],
)
def test_damaged_image_changes_how_a_run_resumes(error, resumable, settings, tmp_path):
    folder = create_run_folder(tmp_path, "a b", state="failed")
    ending = {"code": 1, "error": error, "message": "a.jpg is damaged"}
    (folder / "exit.json").write_text(json.dumps(ending))
    run = read_run(folder)
    assert (run.state, run.resumable, run.resume_settings) == ("failed", resumable, settings)
    assert run.resume == f"resnet-train --resume '{folder}'{settings}"


@pytest.mark.parametrize(("code", "resumable"), [(130, True), (1, True), (3, False)])
def test_run_without_steps_resumes_unless_rejected(code, resumable, tmp_path):
    folder = create_run_folder(tmp_path, "a", state="stopped")
    shutil.rmtree(folder / "checkpoints")
    (folder / "metrics.jsonl").unlink()
    (folder / "provenance.json").write_text('{"recipe": "mild", "epochs": 3.0}')
    (folder / "exit.json").write_text(json.dumps({"code": code}))
    run = read_run(folder)
    assert (run.epochs, run.epochs_done, run.resumable) == (3, 0, resumable)


@pytest.mark.parametrize(("manifest", "code"), [('{"bytes": 1}', 1), ("damaged", 1), (None, 75)])
def test_run_without_usable_checkpoint_is_not_resumable(manifest, code, tmp_path):
    folder = create_run_folder(tmp_path, "a", state="stopped")
    (path := folder / "checkpoints/step-00000040.json").unlink()
    if manifest:
        path.write_text(manifest)
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write(
            '{"kind": "saved", "step": 40, "epoch": 4, "wall_seconds": 1, "seconds": 1}\n'
        )
    (folder / "exit.json").write_text(json.dumps({"code": code}))
    assert not read_run(folder).resumable


def test_locked_run_is_running(tmp_path):
    folder = create_run_folder(tmp_path, "a", state="killed")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert read_run(folder).state == "running"
        assert not read_run(folder).resumable
    assert read_run(folder).state == "killed"


def test_unstarted_folder_is_prepared(tmp_path):
    folder = create_run_folder(tmp_path, "a", state="killed")
    (folder / "metrics.jsonl").unlink()
    assert read_run(folder).state == "prepared"
    (folder / "logs").mkdir()
    assert read_run(folder).state == "killed"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"ema_top1_percent": "x", "epochs": true}', b"\xff" * 9]
)
def test_read_run_omits_values_of_damaged_files(content, tmp_path):
    folder = create_run_folder(tmp_path, "a")
    for name in ("summary.json", "provenance.json", "metrics.jsonl", "overrides.txt"):
        (folder / name).write_bytes(content)
    assert read_run(folder).top1_percent is None


def test_iterate_runs_skips_other_folders_and_dead_links(tmp_path):
    create_run_folder(tmp_path, "b")
    create_run_folder(tmp_path, "a", state="failed")
    create_run_folder(tmp_path, ".1f.tmp")  # a killed process may leave such a folder
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert [run.name for run in iterate_runs(tmp_path)] == ["a", "b"]


def test_newest_run_is_the_one_created_last(tmp_path):
    days = {"old": '{"created": "2026-11-30"}', "new": '{"created": "2026-12-01"}', "broken": "["}
    for name, environment in days.items():
        (create_run_folder(tmp_path, name) / "env.json").write_text(environment)
    os.utime(tmp_path / "old/overrides.txt", (2e9, 2e9))  # copied after the other run was created
    assert [path.name for path in iterate_newest_runs(tmp_path)] == ["new", "old", "broken"]


def test_shared_changes_ignores_unreadable_runs(tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        folder = create_run_folder(tmp_path, name, seed=seed)
        (folder / "overrides.txt").write_text(
            f"optimizer.lr=1\nscale_schedule_ratio=1.0\nseed={seed}\nrun.name={name}\n"
        )
    assert find_shared_changes(list(iterate_runs(tmp_path))) == ("lr=1",)
    (create_run_folder(tmp_path, "damaged") / "summary.json").write_text("[")
    runs = list(iterate_runs(tmp_path))
    assert [run.state for run in runs] == ["finished", "finished", "unreadable"]
    assert find_shared_changes(runs) == ("lr=1",)
    assert find_shared_changes(runs[:1]) == ("lr=1", "seed=1")
    assert find_shared_changes([]) == ()
