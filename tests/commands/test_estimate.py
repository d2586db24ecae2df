"""`resnet-recipes estimate` and `bottleneck` as a user sees them."""

import json
from pathlib import Path

import pytest

from resnet_recipes.commands import bottleneck, estimate, plan
from resnet_recipes.commands.arguments import split
from resnet_recipes.commands.composed import composed
from resnet_recipes.measure.estimate import Speeds
from resnet_recipes.train import probe

WORDS = ["recipe=mild", "data.backend=synthetic", "model.name=resnet18", "bs=16", "epochs=3", "schedule.warmup=1ba",
         "launch.device=cpu"]


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """Count the measurements, which give the same speeds each time."""
    calls: list[object] = []
    speeds = Speeds({88: (0.01,) * 4, 176: (0.04,) * 4}, 50.0, 20.0, 16)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(probe, "speeds", lambda *_, **__: calls.append(0) or speeds)
    monkeypatch.setattr(probe, "together", lambda *_, **__: 45.0)
    return calls


def test_an_estimate_is_measured_once_and_recalled(measured: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert estimate.run([*WORDS, "--price", "36/h"]) == 0
    out = capsys.readouterr().out
    assert len(measured) == 1
    assert "Measured on this machine" in out
    assert "at 36 an hour" in out
    estimate.run([*WORDS, "--again"])
    estimate.run([*WORDS, "model.name=resnet34"])
    assert len(measured) == 3


def test_phases_and_cost_are_there_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    estimate.run([*WORDS, "--json", "--price", "36"])
    values = json.loads(capsys.readouterr().out)
    assert sum(phase["minutes"] for phase in values["phases"]) == pytest.approx(values["training_minutes"])
    assert values["cost"] == pytest.approx(0.6 * (values["training_minutes"] + values["evaluation_minutes"]))
    assert values["bounds_minutes"][0] <= values["training_minutes"] <= values["bounds_minutes"][1]


def test_the_bottleneck_is_named_with_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    bottleneck.run(WORDS)
    out = capsys.readouterr().out
    assert "The loader is the bottleneck: at 88 px 1 device could take 100 images/s" in out
    assert "wait 50 % of the time" in out
    assert "methods.progressive_resizing.at=loader" in out


def test_a_measured_machine_tells_time_and_cost_in_the_plan_and_the_run_learns_how_wrong_that_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*WORDS, "launch.price=36"]
    plan.run(words)
    assert "was measured" not in capsys.readouterr().out
    estimate.run(words)
    plan.run(words)
    out = capsys.readouterr().out
    assert "this machine was measured" in out
    assert "at 36 an hour" in out
    made = estimate.plan_of(composed(split(words, plan.USAGE)))
    estimate.keep(made, tmp_path)
    kept = json.loads((tmp_path / "estimate.json").read_text())
    assert kept["training_seconds"] == pytest.approx(60 * estimate.of(made, estimate.known(made).speeds).minutes)
