"""The settings that differ between recipes."""


def test_diff_shows_only_differences(run_subcommand):
    out = run_subcommand("diff mild medium")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert rows["methods.label_smoothing.smoothing"] == ["0.08", "0.1"]
    assert rows["methods.sam.interval"] == ["-", "10"]
    assert "optimizer.lr" not in rows
