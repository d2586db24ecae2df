"""The best weights follow the chosen metric."""

import pytest
import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.inference.model_card import make_model_card
from resnet_recipes.jobs.train import write_weight_files
from resnet_recipes.network.load import load
from resnet_recipes.report.recorder import Evaluation
from resnet_recipes.run_folder import BEST_WEIGHTS
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training.best_weights import BestWeights
from resnet_recipes.training.state import collect_state, restore

#: Evaluations; each metric selects a different one as the best.
EVALUATIONS = [
    Metrics(50.0, 90.0, 2.0, 100, 40.0),
    Metrics(70.0, 90.0, 1.9, 100, 45.0),
    Metrics(60.0, 90.0, 1.0, 100, 42.0),
    Metrics(65.0, 90.0, 1.5, 100, 55.0),
    Metrics(70.0, 90.0, 1.0, 100, 55.0),  # not better by any metric, so the earlier one stays
]


def evaluate_all(run):
    """Return the run after all evaluations; evaluation n runs with the first bias set to n."""
    for number, metrics in enumerate(EVALUATIONS, 1):
        run.model.fc.bias.data.fill_(number)
        run.best = run.best.with_evaluation(number, metrics, run.model)
    return run


@pytest.mark.parametrize(("by", "step"), [("top1", 2), ("loss", 3), ("balanced_accuracy", 4)])
def test_best_weights_keep_first_best_by_metric(by, step, make_run, tmp_path):
    run = evaluate_all(make_run(f"checkpoint.best={by}"))
    assert (run.best.step, run.best.metrics) == (step, EVALUATIONS[step - 1])
    network = load(write_weight_files(run, tmp_path, Evaluation(None, None), 5).best)
    assert (tmp_path / BEST_WEIGHTS).exists()
    assert set(network.model.fc.bias.tolist()) == {step}
    assert network.about.top1_percent == EVALUATIONS[step - 1].top1
    assert "the best evaluation of 5 on" in make_model_card(network.about, "timm", "", "")


def test_best_weights_are_off_by_default(make_run, tmp_path):
    run = evaluate_all(make_run())
    assert collect_state(run, 5)["best"] == {}
    assert write_weight_files(run, tmp_path, Evaluation(None, None), 5).best is None
    assert not (tmp_path / BEST_WEIGHTS).exists()


def test_resumed_best_weights_require_the_same_metric(make_run):
    state = collect_state(evaluate_all(make_run("checkpoint.best=loss")), 5)
    same = make_run("checkpoint.best=loss")
    other = make_run("checkpoint.best=top1")
    for run in (same, other):
        restore(run, state)
    assert (same.best.step, same.best.evaluations, same.best.metrics) == (3, 5, EVALUATIONS[2])
    assert set(same.best.weights["fc.bias"].tolist()) == {3}
    assert other.best.metrics is None


@pytest.mark.parametrize("wrong", [{"metrics": [1.0]}, {"weights": {"fc.bias": torch.zeros(1)}}])
def test_restore_rejects_best_weights_that_do_not_fit(wrong, make_run):
    state = collect_state(evaluate_all(make_run("checkpoint.best=loss")), 5)
    with pytest.raises(TrainingError, match="the checkpoint cannot be used"):
        restore(make_run("checkpoint.best=loss"), state | {"best": state["best"] | wrong})


def test_unknown_balanced_accuracy_falls_back_to_top1():
    none = BestWeights("balanced_accuracy")
    model = torch.nn.Linear(1, 1)
    first = none.with_evaluation(1, Metrics(50.0, 90.0, 2.0, 100), model)
    second = first.with_evaluation(2, Metrics(40.0, 90.0, 2.0, 100), model)
    assert [best.step for best in (none, first, second)] == [0, 1, 1]
    assert [best.evaluations for best in (none, first, second)] == [0, 1, 2]
