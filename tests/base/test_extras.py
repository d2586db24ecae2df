"""Optional packages: the settings that need them, and the command that installs them."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from resnet_recipes.base import extras
from resnet_recipes.base.extras import find_needed_extras, suggest_install


def simulate_checkout(source: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pip report that the package was installed from a folder, or from an index."""
    text = source and json.dumps({"url": source.as_uri()})
    package = SimpleNamespace(
        read_text=lambda name: text,
        requires=["torch>=2", "a[b]<2,>=1; extra == 'report'".replace("'", '"'), 'c; extra == "x"'],
    )
    monkeypatch.setattr(extras, "distribution", lambda name: package)
    monkeypatch.setattr(extras, "find_spec", lambda name: name)
    monkeypatch.setattr(extras, "__file__", "/site-packages/resnet_recipes/base/extras.py")


def test_install_command_uses_the_checkout(tmp_path, monkeypatch):
    source = tmp_path / "a checkout"
    source.mkdir()
    (source / "pyproject.toml").touch()
    simulate_checkout(source, monkeypatch)
    assert suggest_install("report") == f"pip install '{source}[report]'"
    monkeypatch.chdir(source)
    assert suggest_install("report") == "pip install '.[report]'"


@pytest.mark.parametrize("source", [None, Path("/deleted")])
def test_install_command_lists_packages_without_checkout(source, monkeypatch):
    simulate_checkout(source, monkeypatch)
    assert suggest_install("report") == "pip install 'a[b]<2,>=1'"


def test_install_command_uses_uv_without_pip(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert suggest_install("report").startswith("uv pip install ")


def test_run_needs_extras_of_its_settings():
    extras_needed = find_needed_extras(
        "s3://bucket/pets", ["timm:vit_base", "hf:me/net"], ["wandb", "csv"]
    )
    assert list(extras_needed) == ["wandb", "remote", "timm", "hub"]
    assert extras_needed["wandb"] == ("WANDB_API_KEY",)
    assert extras_needed["remote"] == ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    assert find_needed_extras("/data/pets", ["resnet50", ""], []) == {}
    assert find_needed_extras("https://a.b/pets.csv", ["resnet50", ""], []) == {"remote": ()}
