"""The settings that differ between recipes."""

import re
from pathlib import Path

import pytest

from resnet_recipes import compose
from resnet_recipes.recipe.frozen_recipe import freeze
from tests.shared.run_folders import create_run_folder


def test_diff_shows_only_differences(run_subcommand):
    out = run_subcommand("diff mild medium")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert rows["methods.label_smoothing.smoothing"] == ["0.08", "0.1"]
    assert rows["methods.sam.interval"] == ["-", "10"]
    assert "optimizer.lr" not in rows


def test_diff_writes_booleans_like_a_recipe(run_subcommand):
    rows = [line.split() for line in run_subcommand("diff finetune demo").splitlines()]
    assert ["model.freeze_bn", "true", "false"] in rows


def test_diff_labels_long_names_and_shortens_epochs(run_command):
    for name, epochs in (("a", 2), ("b", 4)):
        folder = Path("runs", name * 50)
        folder.mkdir(parents=True)
        (folder / "overrides.txt").touch()
        (folder / "config.yaml").write_text(freeze(compose("mild", epochs=epochs, data="/pets")))
    out = run_command(f"resnet-recipes diff {'a' * 50} {'b' * 50}").out
    assert f"A  {'a' * 50}\nB  {'b' * 50}\n\nSETTING" in out
    assert re.search(r"^epochs +2 +4$", out, re.MULTILINE)


@pytest.mark.parametrize("run", ["short", "short/config.yaml"])
def test_diff_shows_epochs_of_scaled_durations(run, run_command):
    folder = Path("runs/short")
    folder.mkdir(parents=True)
    (folder / "overrides.txt").touch()
    (folder / "config.yaml").write_text(freeze(compose("mild", epochs=10, data="/pets")))
    out = run_command(f"resnet-recipes diff {run} mild").out
    assert re.search(r"^epochs +10 +36$", out, re.MULTILINE)
    assert not {"max_duration", "ssr"} & {*out.split()}


def test_diff_prints_wide_rows_below_the_table(run_command, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    root = f"/{'x' * 70}"
    create_run_folder(tmp_path / "runs", "a", config={"data": {"root": root}, "seed": 5})
    lines = run_command("resnet-recipes diff a mild").out.splitlines()
    assert lines[-2:] == [f"  A: {root}", "  B: -"]


def test_diff_reports_all_damaged_runs(run_command, tmp_path):
    for name in ("first", "second"):
        (create_run_folder(tmp_path / "runs", name) / "config.yaml").unlink()
    message = run_command("resnet-recipes diff first second", 3).err
    assert message.count("/config.yaml does not exist") == 2
