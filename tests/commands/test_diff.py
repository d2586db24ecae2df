"""The settings that differ between recipes."""

from tests.run_folders import create_run_folder


def test_diff_shows_only_differences(run_subcommand):
    out = run_subcommand("diff mild medium")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert rows["methods.label_smoothing.smoothing"] == ["0.08", "0.1"]
    assert rows["methods.sam.interval"] == ["-", "10"]
    assert "optimizer.lr" not in rows


def test_diff_reports_all_damaged_runs(run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        (create_run_folder(tmp_path / "runs", name) / "config.yaml").unlink()
    message = run_command("resnet-recipes diff first second", 3).err
    assert message.count("/config.yaml does not exist") == 2
