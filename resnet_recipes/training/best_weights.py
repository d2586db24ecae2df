"""Keep the weights of the best evaluation."""

from copy import copy

from torch import Tensor, nn

from resnet_recipes.network.archive import State
from resnet_recipes.run_folder.metrics import Metrics


class BestWeights:
    """Keeps a copy, on the host, of the weights with the best evaluation.

    Checkpoints contain it, so that a resumed run keeps the same weights. The best of many
    evaluations is biased: accuracy on other images is lower.
    """

    def __init__(self, by: str):
        """Compare by `by`, a value of checkpoint.best; "off" keeps nothing.

        Top-1 replaces balanced accuracy if an evaluation lacks it.
        """
        self.by = by
        self.step = 0  # completed steps at the best evaluation
        self.evaluations = 0  # evaluations so far
        self.metrics: Metrics | None = None
        self.weights: dict[str, Tensor] = {}

    def with_evaluation(self, done: int, metrics: Metrics, model: nn.Module) -> "BestWeights":
        """Return the best weights after an evaluation of `model`; this object does not change."""
        after = copy(self)
        after.evaluations += 1
        if self.by == "off" or (self.metrics and self._score(metrics) <= self._score(self.metrics)):
            return after
        after.step, after.metrics = done, metrics
        after.weights = {
            name: tensor.detach().to("cpu", copy=True)
            for name, tensor in model.state_dict().items()
        }
        return after

    def state_dict(self) -> State:
        """Return plain values and tensors for a checkpoint; empty if nothing is kept."""
        return {**vars(self)} if self.metrics else {}

    def load_state_dict(self, state: State) -> None:
        """Restore the result of `state_dict`, unless it was the best by another metric."""
        if state.get("by") == self.by:
            self.step = state["step"]
            self.evaluations = state["evaluations"]
            self.metrics = Metrics(*state["metrics"])
            self.weights = {name: tensor.clone() for name, tensor in state["weights"].items()}

    def _score(self, metrics: Metrics) -> float:
        if self.by == "balanced_accuracy":
            return metrics.top1 if metrics.balanced is None else metrics.balanced
        return -metrics.loss if self.by == "loss" else metrics.top1
