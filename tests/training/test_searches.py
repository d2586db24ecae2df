"""cuDNN searches where many pixels are trained on at one size, and nowhere else."""

from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from resnet_recipes.jobs.signals import Interruption
from resnet_recipes.training import gradient
from resnet_recipes.training.build import searched
from resnet_recipes.training.loop import train
from resnet_recipes.training.reporter import RunReporter
from tests.training.test_loop import Notes


@pytest.fixture(autouse=True)
def _switch() -> Iterator[None]:
    before = torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.benchmark = before


def plan(sizes: tuple[int, ...], images: int, last: float = 1.0) -> SimpleNamespace:
    """What a search for algorithms reads of a plan.

    The size of each epoch, and how many images a rank trains on in an epoch.
    """
    steps = images // 256
    return SimpleNamespace(
        total_steps=round((len(sizes) - 1 + last) * steps),
        steps_per_epoch=steps,
        rank_size=256,
        sizes=sizes,
    )


def test_only_sizes_of_many_pixels_are_searched_for():
    # of 300,000 images of 224 px, an epoch of 88 px has 10 %, one of 112 px 17 %, and one of 176 px
    # 41 %
    mild = plan((88,) * 6 + (112,) * 5 + (176,) * 3, 200_000)
    assert searched(mild) == [176]
    assert searched(plan((88,) * 11 + (112, 176), 200_000)) == [88]


def test_a_size_counts_in_all_its_epochs_as_far_as_they_go():
    assert searched(plan((224, 176, 224), 151_000)) == [224]
    assert searched(plan((224, 176, 224), 151_000, last=0.9)) == []


def test_the_choice_of_algorithms_precedes_the_first_step_of_a_size(make_run, monkeypatch):
    """Torch keeps the first one, also that of the rehearsal."""
    run = make_run("max_duration=3ep methods.progressive_resizing.delay=0.2dur")
    seen = []
    small, *_, large = run.plan.sizes
    run.searches = [large]
    run.model.register_forward_pre_hook(
        lambda module, inputs: seen.append((inputs[0].shape[-1], torch.backends.cudnn.benchmark))
    )
    gradient.rehearse(run)
    assert seen == [(large, True)]
    train(run, Notes(run))
    assert set(seen) == {(side, side == large) for side in run.plan.sizes}
    assert small != large


def test_nothing_is_searched_for_in_an_evaluation(make_run):
    run, seen = make_run(), []
    torch.backends.cudnn.benchmark = True
    run.model.register_forward_pre_hook(
        lambda module, inputs: seen.append(torch.backends.cudnn.benchmark)
    )
    RunReporter(run, None, Interruption(), Mock()).evaluate(1)
    assert set(seen) == {False}
