"""`resnet-recipes estimate` and `bottleneck` as a user sees them."""

import json
from pathlib import Path

import pytest

from resnet_recipes.base.errors import ExitCode, RecipeError
from resnet_recipes.commands import verbs
from resnet_recipes.commands.arguments import split
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.launch import measurement
from resnet_recipes.measure.estimate import Speeds
from resnet_recipes.planning.estimate import estimate_for
from resnet_recipes.process.ending import Ending

WORDS = [
    "recipe=mild",
    "data.backend=synthetic",
    "model.name=resnet18",
    "bs=16",
    "epochs=3",
    "schedule.warmup=1ba",
    "launch.device=cpu",
]


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """Count the measurements, which give the same speeds each time."""
    calls: list[object] = []
    speeds = Speeds({88: (0.01,) * 4, 176: (0.04,) * 4}, 50.0, 20.0, 16, end_to_end=45.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        measurement, "speeds", lambda *_: calls.append(0) or (Ending(ExitCode.DONE), speeds)
    )
    return calls


def test_an_estimate_is_measured_once_and_recalled(measured, capsys):
    for _ in range(2):
        assert verbs.run(["estimate", *WORDS, "--price", "36/h"]) == 0
    out = capsys.readouterr().out
    assert len(measured) == 1
    assert "Measured on this machine" in out
    assert "at 36 per hour" in out
    verbs.run(["estimate", *WORDS, "--again"])
    verbs.run(["estimate", *WORDS, "model.name=resnet34"])
    assert len(measured) == 3


def test_phases_and_cost_are_there_for_programs(capsys):
    verbs.run(["estimate", *WORDS, "--json", "--price", "36"])
    values = json.loads(capsys.readouterr().out)
    assert sum(phase["minutes"] for phase in values["phases"]) == pytest.approx(
        values["training_minutes"]
    )
    assert values["cost"] == pytest.approx(
        0.6 * (values["training_minutes"] + values["evaluation_minutes"])
    )
    assert values["bounds_minutes"][0] <= values["training_minutes"] <= values["bounds_minutes"][1]


def test_a_price_that_is_none_is_refused_before_images_are_counted():
    with pytest.raises(RecipeError, match="must be a price per hour"):
        verbs.run(["estimate", "mild", "data=/nowhere", "--price", "abc"])


def test_the_bottleneck_is_named_with_what_to_change(capsys):
    verbs.run(["bottleneck", *WORDS])
    out = capsys.readouterr().out
    assert "The loader is the bottleneck: at 88 px, 1 device could train 100 images/s" in out
    assert "wait 50 % of the time" in out
    assert "methods.progressive_resizing.at=loader" in out


def test_an_exchange_that_takes_most_of_a_step_is_named(monkeypatch, capsys):
    """A step of 2 x 16 images at 88 px takes 320 ms."""
    speeds = Speeds({88: (0.01,) * 4}, None, 20.0, 16, devices=2, exchange=0.3)
    monkeypatch.setattr(measurement, "speeds", lambda *_: (Ending(ExitCode.DONE), speeds))
    verbs.run(["bottleneck", *WORDS, "gpus=2"])
    out = capsys.readouterr().out
    assert "300 ms alone; a step at 88 px takes 320 ms" in out
    assert "The exchange of gradients is the bottleneck: 2 devices" in out
    assert "precision.compress_gradients=true" in out


def test_the_plan_has_time_and_cost_once_measured_and_the_run_learns_how_wrong_they_were(
    tmp_path, capsys
):
    words = [*WORDS, "launch.price=36"]
    verbs.run(["plan", *words])
    assert "was measured" not in capsys.readouterr().out
    verbs.run(["estimate", *words])
    verbs.run(["plan", *words])
    out = capsys.readouterr().out
    assert "measured on this machine" in out
    assert "at 36 per hour" in out
    _, made = measurement.plan_here(composed(split(words, PAGES["plan"])), print)
    measurement.keep_estimate(made, tmp_path)
    kept = json.loads((tmp_path / "estimate.json").read_text())
    assert kept["training_seconds"] == pytest.approx(
        60 * estimate_for(made, measurement.known(made).speeds).minutes
    )


@pytest.mark.slow
def test_two_ranks_are_measured_with_their_exchange(nursery, tmp_path):
    words = [
        *WORDS,
        "gpus=2",
        "data.train_size=32",
        "data.eval_resize=32",
        "data.eval_size=32",
        "batch.eval_size=16",
        "~methods.progressive_resizing",
    ]
    code, out, err = nursery.run(tmp_path, "tests.commands.verb", "estimate", *words).wait()
    assert code == 0, err
    assert "measuring this machine" in err
    assert "The exchange between 2 ranks takes" in out
