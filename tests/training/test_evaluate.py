"""Evaluation counts every example once."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.base import RawBatch, normalize
from resnet_recipes.training import evaluate as evaluation
from resnet_recipes.training.evaluate import evaluate
from resnet_recipes.training.outcomes import Outcomes
from resnet_recipes.training.precision import Precision


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
