"""The gradient of one step's batch: the one place to make it faster."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from resnet_recipes.methods.base import Batch
from resnet_recipes.train.run import Run

#: Add a batch's gradient to `.grad`, averaged over ranks if asked to; return this rank's mean loss.
ComputeGradient = Callable[[Batch, bool], Tensor]


def gradient_of(run: Run) -> ComputeGradient:
    """Return how this run computes gradients; the training loop does not know how."""
    return partial(eager, run)


def eager(run: Run, batch: Batch, sync: bool = True) -> Tensor:
    """Go forward and backward through each micro-batch, operation by operation."""
    parts = run.plan.microbatches
    total = torch.zeros((), device=run.rank.device)
    for i, part in enumerate(batch.split(parts)):
        with run.precision.autocast():
            loss = run.methods.loss(run.model(part.images), part.targets) / parts
        with run.exchange.averaging(sync and i == parts - 1):
            run.precision.backward(loss)
        total += loss.detach()
    return total
