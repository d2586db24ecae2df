from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from resnet_recipes.composing.overrides import SHORT, Override, parse
from resnet_recipes.composing.typed import settings


def as_hydra_reads(key: str, value: str) -> object:
    """Return the value that Hydra's grammar gives for an override."""
    parsed = OverridesParser.create().parse_override(Override("", key, value).for_hydra(settings()[key]))
    assert parsed.key_or_group == key
    return parsed.value()


@pytest.mark.parametrize("text", [
    "/a=b", "/set(1)", "/x,/y", "/with space", "/it's", "/back\\slash", "/end\\", "/two\\\\", "/quo'\\'te", "\\'",
    "/$odd", "/a[0]", "/#1", "/{a:b}", "123", "null", "true", "1e3", "", " ", "~", "a:b", '"q"',
])
def test_text_reaches_a_text_setting_as_it_was_typed(text):
    assert as_hydra_reads("data.root", text) == text


@pytest.mark.parametrize(("key", "value", "read"), [
    ("launch.gpus", "4", 4), ("launch.gpus", "auto", "auto"), ("data.workers", "0", 0), ("optimizer.lr", "1e-3", 1e-3),
    ("optimizer.lr", "1", 1), ("optimizer.clip_norm", "null", None), ("data.flip", "false", False),
    ("schedule.milestones", "[30ep,60ep]", ["30ep", "60ep"]),
])
def test_values_of_other_settings_are_read_by_their_looks(key, value, read):
    assert as_hydra_reads(key, value) == read


def test_every_short_spelling_leads_to_settings():
    for name, targets in SHORT.items():
        overrides, problems = parse([f"{name}=1"], settings())
        assert problems == []
        assert [override.key for override in overrides] == [target.split("=")[0] for target in targets]


def test_folders_become_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    values = [override.value for override in parse(["data=images", "data=~/images", "run.root=out"], settings())[0]]
    assert values == [str(tmp_path / "images"), "/home/someone/images", str(Path(tmp_path) / "out")]


def test_quotes_around_a_value_are_taken_off():
    assert parse(["run='a+b'", 'about="x y"'], settings())[0] == [
        Override("run='a+b'", "run.name", "a+b"), Override('about="x y"', "about", "x y")]
