"""Evaluation counts every example once; the best weights follow the chosen metric."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.base import RawBatch, normalize
from resnet_recipes.inference.model_card import make_model_card
from resnet_recipes.jobs.train import write_weight_files
from resnet_recipes.network.load import load
from resnet_recipes.report.recorder import Evaluation
from resnet_recipes.run_folder import BEST_WEIGHTS
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training import evaluate as evaluation
from resnet_recipes.training.evaluate import BestWeights, evaluate
from resnet_recipes.training.outcomes import Outcomes
from resnet_recipes.training.precision import Precision
from resnet_recipes.training.state import collect_state, restore


class Examples:
    """Random images in batches of equal size; the last batch may be smaller."""

    def __init__(self, examples: int, size: int):
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 256, (examples, 8, 8, 3), dtype=torch.uint8, generator=generator)
        self.pixels = pixels.permute(0, 3, 1, 2)
        self.labels = torch.randint(0, 10, (examples,), generator=generator)
        self.examples, self.size = examples, size

    def normalize(self, batch: RawBatch) -> Tensor:
        return normalize(batch.pixels)

    def batches(self) -> Iterator[RawBatch]:
        for start in range(0, len(self.labels), self.size):
            yield RawBatch(
                self.pixels[start : start + self.size], self.labels[start : start + self.size]
            )


@pytest.fixture
def batch_norm_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))


def run_evaluation(model: nn.Module, data: Examples, flip: bool = False) -> tuple:
    return evaluate(model, data, Precision(torch.device("cpu"), torch.float32, model), 10, flip)


def compute_all_logits(model: nn.Module, data: Examples) -> Tensor:
    """Return the logits of all examples in one batch; leaves evaluation mode on."""
    model.eval()
    with torch.no_grad():
        return model(normalize(data.pixels))


def test_evaluate_matches_manual_loop(batch_norm_network):
    data = Examples(23, 5)
    logits = compute_all_logits(batch_norm_network, data)
    best = logits.argsort(1, descending=True).tolist()
    labels = data.labels.tolist()
    first, five = (
        sum(label in order[:count] for order, label in zip(best, labels, strict=True))
        for count in (1, 5)
    )
    metrics = run_evaluation(batch_norm_network, data)
    assert (metrics.top1, metrics.top5, metrics.examples) == (100 * first / 23, 100 * five / 23, 23)
    assert metrics.loss == pytest.approx(float(F.cross_entropy(logits, data.labels)), rel=1e-6)


def test_evaluate_uses_running_statistics_and_restores_training_mode(batch_norm_network):
    before = batch_norm_network[1].running_mean.clone()
    run_evaluation(batch_norm_network, Examples(8, 4))
    assert torch.equal(batch_norm_network[1].running_mean, before)
    assert batch_norm_network.training


def test_evaluate_uses_statistics_of_rank_0(batch_norm_network, monkeypatch):
    data = Examples(7, 5)  # images of this rank only
    mean = batch_norm_network[1].running_mean.fill_(float("nan"))
    monkeypatch.setattr(evaluation, "broadcast_statistics", lambda _: mean.fill_(0.0))
    assert run_evaluation(batch_norm_network, data).examples == 7


def test_evaluate_flip_averages_both_orientations(batch_norm_network):
    data = Examples(23, 5)
    mirrored = Examples(23, 5)
    mirrored.pixels = mirrored.pixels.flip(3)
    logits = (
        compute_all_logits(batch_norm_network, data)
        + compute_all_logits(batch_norm_network, mirrored)
    ) / 2
    assert run_evaluation(batch_norm_network, data, flip=True).loss == pytest.approx(
        float(F.cross_entropy(logits, data.labels)), rel=1e-6
    )


@pytest.mark.parametrize("wrong", [22, 24])
def test_evaluate_rejects_missing_or_repeated_examples(batch_norm_network, wrong):
    data = Examples(23, 5)
    data.examples = wrong
    with pytest.raises(TrainingError, match=f"saw 23 of {wrong} images"):
        run_evaluation(batch_norm_network, data)


def test_top5_of_fewer_classes_is_100():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    data = Examples(10, 5)
    data.labels = data.labels % 3
    assert run_evaluation(model, data).top5 == 100


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_evaluate_rejects_non_finite_logits(batch_norm_network, value):
    data = Examples(10, 5)
    unused = next(label for label in range(10) if label not in data.labels)
    with torch.no_grad():
        batch_norm_network[3].bias[unused] = value  # -inf then leaves the loss finite
    with pytest.raises(TrainingError, match="outputs for 10 of 10 images are not finite"):
        run_evaluation(batch_norm_network, data)


def test_evaluate_rejects_non_finite_loss(batch_norm_network):
    with torch.no_grad():
        batch_norm_network[3].weight.zero_()
        batch_norm_network[3].bias.fill_(-3e38)
        batch_norm_network[3].bias[0] = 3e38
    with pytest.raises(TrainingError, match="validation loss is not a finite number"):
        run_evaluation(batch_norm_network, Examples(10, 5))


class FunctionRecorder(TorchFunctionMode):
    """Records the torch functions that take a tensor with a given number of elements."""

    def __init__(self, elements: int):
        super().__init__()
        self.elements, self.names = elements, []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if any(isinstance(value, Tensor) and value.numel() == self.elements for value in args):
            self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


def test_evaluate_reads_logits_three_times():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 1013))
    data = Examples(3, 3)
    with FunctionRecorder(3 * 1013) as passes:
        evaluate(model, data, Precision(torch.device("cpu"), torch.float32, model), 1013)
    # `float` does not copy float32, and `gather` reads two values per image
    free = {"float", "gather", "__get__", "dim", "size"}
    assert [name for name in passes.names if name not in free] == ["topk", "amin", "log_softmax"]


def test_on_batch_receives_outcomes_of_every_batch(batch_norm_network):
    batches = []
    data = Examples(23, 5)
    precision = Precision(torch.device("cpu"), torch.float32, batch_norm_network)
    evaluate(batch_norm_network, data, precision, 10, on_batch=batches.append)
    assert [len(batch.labels) for batch in batches] == [5, 5, 5, 5, 3]
    outcomes = Outcomes.concatenate(batches)
    logits = compute_all_logits(batch_norm_network, data)
    assert torch.equal(outcomes.labels, data.labels)
    assert torch.equal(outcomes.predicted, logits.argmax(1))
    torch.testing.assert_close(outcomes.probabilities, logits.softmax(1).amax(1))
    losses = F.cross_entropy(logits, data.labels, reduction="none")
    torch.testing.assert_close(outcomes.losses, losses)


def test_balanced_accuracy_averages_over_classes_with_images(batch_norm_network):
    data = Examples(23, 5)
    data.labels %= 7  # three classes have no images
    is_right = (compute_all_logits(batch_norm_network, data).argmax(1) == data.labels).double()
    shares = [float(is_right[data.labels == label].mean()) for label in data.labels.unique()]
    metrics = run_evaluation(batch_norm_network, data)
    assert metrics.balanced == pytest.approx(100 * sum(shares) / 7)
    assert metrics.balanced != pytest.approx(metrics.top1)


def test_evaluate_out_of_memory_suggests_smaller_batch(batch_norm_network):
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.20 GiB")

    batch_norm_network.register_forward_pre_hook(fail)
    with pytest.raises(
        TrainingError, match=r"5 images of 8 px to evaluate .*\n    use:   batch\.eval_size=2$"
    ):
        run_evaluation(batch_norm_network, Examples(23, 5))


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
    restore(same, {key: value for key, value in state.items() if key != "best"})  # older version


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
