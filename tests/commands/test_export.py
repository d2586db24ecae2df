from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from resnet_recipes.base.extras import remedy
from resnet_recipes.cli import main
from resnet_recipes.network import export as formats
from resnet_recipes.network.load import load
from resnet_recipes.training.run import Run
from tests.trained_runs import ended_run


@pytest.fixture
def run(make_run: Callable[..., Run], tmp_path: Path) -> Path:
    """A run with BlurPool and random weights, next to its images."""
    return ended_run(make_run, tmp_path / "run", methods={"blurpool": {}})


def test_an_export_is_compared_on_the_runs_images_and_has_a_card(run, tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    assert main(["export", str(run), "--to", "safetensors", "--out", str(out)]) == 0
    assert "on 30 validation images" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "model.safetensors"]
    assert load(out / "model.safetensors").about == load(run).about


def test_without_images_random_ones_are_compared_and_folding_reports_its_difference(
    run, tmp_path, capsys
):
    (run.parent / "images").rename(tmp_path / "moved")
    words = [
        "export",
        str(run),
        "--to",
        "torchscript",
        "--out",
        str(tmp_path / "out"),
        "--fold-batchnorm",
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "on 64 random images" in said
    assert "by folding BatchNorm" in said


def test_an_export_that_computes_something_else_is_not_kept(run, tmp_path, monkeypatch, capsys):
    wrong = formats.TARGETS["torchscript"]._replace(
        read=lambda path, about: lambda x: torch.ones(len(x), 10)
    )
    monkeypatch.setitem(formats.TARGETS, "torchscript", wrong)
    assert main(["export", str(run), "--to", "torchscript", "--out", str(tmp_path / "out")]) == 1
    assert "nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_a_missing_package_is_named_with_its_remedy(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("resnet_recipes.network.exportable.find_spec", lambda name: None)
    assert main(["export", str(run), "--to", "onnx", "--out", str(tmp_path / "out")]) == 3
    assert remedy("export") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--to: is missing"),
        (["RUN", "--to", "onnx"], "--out: is missing"),
        (["RUN", "--to", "onnx", "--out", "RUN"], "exists"),
        (["RUN", "--to", "timm", "--out", "NEW"], "support blurpool"),
        (["RUN", "--to", "keras", "--out", "NEW"], "must be one of"),
        (["RUN", "--to", "safetensors", "--fold-batchnorm", "--out", "NEW"], "--fold-batchnorm"),
    ],
)
def test_mistakes_are_explained(run, words, said, tmp_path, capsys):
    typed = [word.replace("RUN", str(run)).replace("NEW", str(tmp_path / "out")) for word in words]
    assert main(["export", *typed]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
