"""The weights of a run's best evaluation."""

from typing import Any

import torch
from torch import Tensor, nn

from resnet_recipes.run_folder.metrics import Metrics


class Best:
    """Keeps a copy, on the host, of the weights that were best in an evaluation.

    It is part of a checkpoint, so that a resumed run keeps the same. The best of many evaluations
    is flattered: on other images its accuracy is lower.
    """

    def __init__(self, by: str):
        """Compare by `by`, a value of checkpoint.best; "off" keeps nothing."""
        self.by = by
        self.step = 0  # completed steps at the best evaluation
        self.evaluations = 0  # so far
        self.metrics: Metrics | None = None
        self.weights: dict[str, Tensor] = {}

    def see(self, done: int, metrics: Metrics, model: nn.Module) -> bool:
        """Take in an evaluation of `model` as it is; return whether it is the best so far."""
        self.evaluations += 1
        if self.by == "off" or (self.metrics and self._rank(metrics) <= self._rank(self.metrics)):
            return False
        self.step, self.metrics = done, metrics
        self.weights = {
            name: tensor.detach().to("cpu", copy=True)
            for name, tensor in model.state_dict().items()
        }
        return True

    @torch.no_grad()
    def put_into(self, model: nn.Module) -> None:
        """Replace the weights of `model` by the best ones."""
        model.load_state_dict(self.weights)

    def state_dict(self) -> dict[str, Any]:
        """Return plain values and tensors for a checkpoint; empty before the first evaluation."""
        if self.metrics is None:
            return {}
        return {
            "by": self.by,
            "step": self.step,
            "evaluations": self.evaluations,
            "metrics": list(self.metrics),
            "weights": self.weights,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, unless it was the best by another figure."""
        if state.get("by") == self.by:
            self.step, self.evaluations = state["step"], state["evaluations"]
            self.metrics = Metrics(*state["metrics"])
            self.weights = {name: tensor.clone() for name, tensor in state["weights"].items()}

    def _rank(self, metrics: Metrics) -> float:
        """Return a figure that is higher for better metrics."""
        if self.by == "balanced_accuracy":
            return metrics.top1 if metrics.balanced is None else metrics.balanced
        return -metrics.loss if self.by == "loss" else metrics.top1
