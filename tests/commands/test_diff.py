"""The settings that differ between recipes."""

import re
from pathlib import Path

from resnet_recipes import compose
from resnet_recipes.recipe.frozen_recipe import freeze
from tests.shared.run_folders import create_run_folder


def test_diff_shows_only_differences(run_subcommand):
    out = run_subcommand("diff mild medium")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert rows["methods.label_smoothing.smoothing"] == ["0.08", "0.1"]
    assert rows["methods.sam.interval"] == ["-", "10"]
    assert "optimizer.lr" not in rows


def test_diff_labels_long_names_and_shortens_epochs(run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, epochs in (("a", 2), ("b", 4)):
        folder = Path("runs", name * 50)
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(freeze(compose("mild", epochs=epochs, data="/pets")))
    out = run_command(f"resnet-recipes diff {'a' * 50} {'b' * 50}").out
    assert f"A  {'a' * 50}\nB  {'b' * 50}\n\nSETTING" in out
    assert re.search(r"^epochs +2 +4$", out, re.MULTILINE)


def test_diff_reports_all_damaged_runs(run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        (create_run_folder(tmp_path / "runs", name) / "config.yaml").unlink()
    message = run_command("resnet-recipes diff first second", 3).err
    assert message.count("/config.yaml does not exist") == 2
