"""The text of `resnet-recipes teach`; tests/test_api.py stores outputs."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from resnet_recipes.jobs import teach

COST_LINE = (
    "the teacher: 10 outputs for each of 1,000 images in 36 epochs, 2 MB and 3 PFLOPs, and more"
)

#: A recipe with the teacher in its file.
WITH_TEACHER = """
defaults: [mild]
methods:
  distill: {teacher: best.safetensors}
"""


@pytest.fixture
def stored(monkeypatch, tmp_path):
    """Store nothing; return the file that would have been written."""
    path = tmp_path / "my labels.safetensors"

    def plan(_: object, *arguments: object) -> Mock:
        arguments[-1](COST_LINE)
        return Mock(write=lambda _: path)

    monkeypatch.setattr(teach, "plan_soft_labels", plan)
    Path("recipes").mkdir()
    Path("recipes/mine.yaml").write_text(WITH_TEACHER)
    return path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("mild data=a methods.distill.teacher=T seed=3", "mild data=a seed=3 {labels}"),
        ("mild data=a 'methods.distill={teacher: T}'", "mild data=a {setting} {labels} {none}"),
        ("mine data=a --recipes recipes", "mine data=a {labels} {none} --recipes recipes"),
    ],
)
def test_teach_prints_the_training_command(arguments, expected, stored, run_command):
    out, err = run_command(f"resnet-recipes teach {arguments}")
    assert out == f"{stored}\n"
    command = expected.format(
        labels=f"'methods.distill.labels={stored}'",
        none="methods.distill.teacher=",
        setting="'methods.distill={teacher: T}'",
    )
    assert err.splitlines()[-1] == f"try:   resnet-train {command}"
    tree = run_command(f"resnet-train {command} --cfg=job").out
    assert "teacher: ''" in tree or "teacher:" not in tree
    assert f"labels: {stored}" in tree


def test_teach_wraps_cost_and_dry_run_ends_there(stored, run_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    line = "resnet-recipes teach mild data=a methods.distill.teacher=T --dry-run"
    out, err = run_command(line)
    assert not out
    assert "try:" not in err
    assert max(map(len, err.splitlines())) <= 40
    assert " ".join(err.split()) == COST_LINE
