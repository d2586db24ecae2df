"""Speeds are measured by really training."""

from collections.abc import Callable

import pytest
import torch
import torchvision

from resnet_recipes import data, plan
from resnet_recipes.config import Recipe
from resnet_recipes.train import probe
from tests.process.nursery import narrow_resnet18


@pytest.fixture
def made(recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch) -> plan.Plan:
    """A plan with growing images and every kind of method."""
    monkeypatch.setattr(torchvision.models, "resnet18", narrow_resnet18)
    methods = {
        "progressive_resizing": {"initial_scale": 0.5},
        "colout": {},
        "label_smoothing": {},
        "ema": {},
        "sam": {"interval": 2},
    }
    small = recipe(methods=methods, max_duration="4ep")
    return plan.of(small, data.measure(small.data), 1)


def test_the_ends_and_the_middle_of_the_sizes_are_measured(made: plan.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "STEPS", 3)
    found = probe.speeds(made, torch.device("cpu"), seconds=5.0)
    assert {min(made.sizes), max(made.sizes)} <= set(found.step) <= set(made.sizes)
    assert all(len(laps) >= 1 and min(laps) > 0 for laps in found.step.values())
    assert found.evaluation > 0
    assert found.loader is None


def test_training_on_the_real_images_is_timed(made: plan.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "STEPS", 2)
    assert probe.together(made, torch.device("cpu"), 16, seconds=1.0) > 0


def test_the_probe_trains_at_the_size_it_is_asked_for(made: plan.Plan) -> None:
    for side in set(made.sizes):
        assert set(probe._drawn(made, side, 16).sizes) == {side}


def test_a_step_of_sam_counts_with_its_share() -> None:
    """One in five steps takes two gradients: by hand, (2 + 4 x 1) / 5."""
    laps = [2.0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0]
    assert probe._mixed(laps, 5) == pytest.approx([1.2] * 5)
    assert probe._mixed([3.0, 4.0], 1) == [3.0, 4.0]
    assert probe._mixed([2.0], 5) == [2.0]


def test_the_first_step_that_is_timed_is_one_of_sams(made: plan.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    monkeypatch.setattr(probe, "train", lambda run, keeper, first: (begun.append(first), keeper.laps.extend([1.0] * 4)))
    made.recipe.methods.sam.interval = 5
    probe._step_seconds(made, probe.Rank(0, 0, 1, torch.device("cpu")), 32, 16, 1.0)
    assert (begun[0] + probe.WARM_UP) % 5 == 0
