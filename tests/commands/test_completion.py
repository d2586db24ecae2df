"""What the shells offer; no program is started to find it."""

import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.cli import train
from resnet_recipes.commands.completion import script
from resnet_recipes.data.base import DataConfig

DATA = [f"data.{item.name}=" for item in fields(DataConfig)]


@pytest.fixture(scope="module")
def bash() -> str:
    return script("bash")


def offered(bash: str, line: str, folder: Path) -> list[str]:
    """Return what bash offers at the end of a line."""
    ask = (
        f"{bash}\nCOMP_LINE='{line}' COMP_POINT={len(line)}\n_resnet_recipes\nprintf '%s\\n' "
        '"${COMPREPLY[@]}"'
    )
    return subprocess.run(
        [shutil.which("bash"), "-c", ask],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/nowhere"},
    ).stdout.split()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("resnet-train recipe=mi", ["mild", "mine"]),
        ("resnet-train recipe=mild optimizer.mom", ["optimizer.momentum="]),
        ("resnet-train recipe=mild optimizer=l", ["lamb", "lars"]),
        ("resnet-train schedule=s", ["step"]),
        ("resnet-train ~methods.em", ["~methods.ema"]),
        ("resnet-train methods.mixup.", ["methods.mixup.alpha="]),
        ("resnet-train --resume runs/f", ["runs/first"]),
        ("resnet-train --resume la", ["last"]),
        ("resnet-train --dr", ["--dry-run"]),
        ("resnet-train mi", ["mild", "mine"]),
        ("resnet-recipes show mi", ["mild", "mine"]),
        ("resnet-recipes diff mi", ["mild", "mine"]),
        ("resnet-recipes train ho", ["hot"]),
        ("resnet-train --describe mi", ["mild", "mine"]),
        ("resnet-recipes export runs/first --to on", ["onnx"]),
        ("resnet-recipes export last --to onnx --out ru", ["runs"]),
        ("resnet-recipes runs --csv rec", ["recipes"]),
        ("resnet-train epo", ["epochs="]),
        ("resnet-train mild dat", ["data=", *DATA]),
        ("resnet-recipes ch", []),
        ("resnet-recipes conv", ["convert"]),
        ("resnet-train data=rec", ["recipes"]),
        ("resnet-train evaluation.fl", ["evaluation.flip="]),
        ("resnet-recipes eval runs/first evaluation.si", ["evaluation.sizes="]),
    ],
)
def test_bash_completes_recipes_settings_methods_and_runs(bash, line, wanted, tmp_path):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text("")
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "config.yaml").write_text("")
    assert offered(bash, line, tmp_path) == wanted


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script(shell))
    subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_an_unknown_shell_is_a_mistake(capsys):
    with pytest.raises(RecipeError):
        script("csh")
    assert train(["--completion", "csh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err
