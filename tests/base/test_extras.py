import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from resnet_recipes.base import extras
from resnet_recipes.base.extras import needed, remedy


def installed_from(place: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package be installed by pip from a folder, or from an index."""
    text = place and json.dumps({"url": place.as_uri()})
    found = SimpleNamespace(
        read_text=lambda name: text,
        requires=["torch>=2", "a[b]<2,>=1; extra == 'report'".replace("'", '"'), 'c; extra == "x"'],
    )
    monkeypatch.setattr(extras, "distribution", lambda name: found)
    monkeypatch.setattr(extras, "find_spec", lambda name: name)
    monkeypatch.setattr(extras, "__file__", "/site-packages/resnet_recipes/base/extras.py")


def test_an_extra_is_installed_from_the_checkout_at_hand(tmp_path, monkeypatch):
    place = tmp_path / "a checkout"
    place.mkdir()
    (place / "pyproject.toml").touch()
    installed_from(place, monkeypatch)
    assert remedy("report") == f"pip install '{place}[report]'"
    monkeypatch.chdir(place)
    assert remedy("report") == "pip install '.[report]'"


@pytest.mark.parametrize("place", [None, Path("/deleted")])
def test_without_a_checkout_the_packages_of_the_extra_are_named(place, monkeypatch):
    installed_from(place, monkeypatch)
    assert remedy("report") == "pip install 'a[b]<2,>=1'"


def test_without_pip_uv_is_named(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert remedy("report").startswith("uv pip install ")


def test_a_run_needs_the_extras_of_its_data_its_network_and_its_trackers():
    found = needed("s3://bucket/pets", ["timm:vit_base", "hf:me/net"], ["wandb", "csv"])
    assert list(found) == ["wandb", "remote", "timm", "hub"]
    assert found["wandb"] == ("WANDB_API_KEY",)
    assert found["remote"] == ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    assert needed("/data/pets", ["resnet50", ""], []) == {}
    assert needed("https://a.b/pets.csv", ["resnet50", ""], []) == {"remote": ()}
