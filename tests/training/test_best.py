"""The best evaluation's weights: kept as they were, whatever follows, and through a checkpoint."""

import pytest
import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.jobs.train import write_best
from resnet_recipes.network.load import BEST, load
from resnet_recipes.network.model_card import model_card
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training.evaluate import Best
from resnet_recipes.training.state import capture, restore

#: Evaluations of which another is best by each figure.
SEEN = [
    Metrics(50.0, 90.0, 2.0, 100, 40.0),
    Metrics(70.0, 90.0, 1.9, 100, 45.0),
    Metrics(60.0, 90.0, 1.0, 100, 42.0),
    Metrics(65.0, 90.0, 1.5, 100, 55.0),
    Metrics(70.0, 90.0, 1.0, 100, 55.0),  # no better by any: the first stays
]


def after_all(run):
    """Return the run after all evaluations; before each its first bias is set to its number."""
    for number, metrics in enumerate(SEEN, 1):
        run.model.fc.bias.data.fill_(number)
        run.best.see(number, metrics, run.model)
    return run


@pytest.mark.parametrize(("by", "step"), [("top1", 2), ("loss", 3), ("balanced_accuracy", 4)])
def test_the_first_best_by_its_figure_is_kept_as_it_was(by, step, make_run, tmp_path):
    run = after_all(make_run(f"checkpoint.best={by}"))
    assert (run.best.step, run.best.metrics) == (step, SEEN[step - 1])
    found = load(write_best(run, tmp_path))
    assert (tmp_path / BEST).exists()
    assert set(found.model.fc.bias.tolist()) == {step}
    assert found.about.top1_percent == SEEN[step - 1].top1
    assert "the best evaluation of 5 on" in model_card(found.about, "timm", "", "")


def test_nothing_is_kept_unless_asked_for(make_run, tmp_path):
    run = after_all(make_run())
    assert capture(run, 5)["best"] == {}
    assert write_best(run, tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_a_resumed_run_has_the_best_of_its_checkpoint_but_by_no_other_figure(make_run):
    state = capture(after_all(make_run("checkpoint.best=loss")), 5)
    same, other = make_run("checkpoint.best=loss"), make_run("checkpoint.best=top1")
    for run in (same, other):
        restore(run, state)
    assert (same.best.step, same.best.evaluations, same.best.metrics) == (3, 5, SEEN[2])
    assert set(same.best.weights["fc.bias"].tolist()) == {3}
    assert other.best.metrics is None
    restore(same, {key: value for key, value in state.items() if key != "best"})  # an older one


@pytest.mark.parametrize("wrong", [{"metrics": [1.0]}, {"weights": {"fc.bias": torch.zeros(1)}}])
def test_a_checkpoint_whose_best_does_not_fit_is_refused(wrong, make_run):
    state = capture(after_all(make_run("checkpoint.best=loss")), 5)
    with pytest.raises(TrainingError, match="the checkpoint cannot be used"):
        restore(make_run("checkpoint.best=loss"), state | {"best": state["best"] | wrong})


def test_a_figure_that_is_unknown_is_that_of_all_images():
    best, model = Best("balanced_accuracy"), torch.nn.Linear(1, 1)
    assert best.see(1, Metrics(50.0, 90.0, 2.0, 100), model)
    assert not best.see(2, Metrics(40.0, 90.0, 2.0, 100), model)
