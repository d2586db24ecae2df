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
    compute = partial(eager, run)
    if run.graphs is not None:
        compute = partial(run.graphs.gradient, compute)
    compiles = run.rank.device.type == "cuda" or run.plan.recipe.precision.compile
    return partial(timed, run, compute) if compiles else compute


def timed(run: Run, compute: ComputeGradient, batch: Batch, sync: bool = True) -> Tensor:
    """Compute a gradient, and note how long it takes the host."""
    with run.compiling.gradient(batch.images.shape):
        return compute(batch, sync)


def eager(run: Run, batch: Batch, sync: bool = True, halfway: Callable[[], object] = lambda: None) -> Tensor:
    """Go forward and backward through each micro-batch, kernel by kernel; `halfway` is called in the last."""
    parts = run.plan.microbatches
    total = torch.zeros((), device=run.rank.device)
    for i, part in enumerate(batch.split(parts)):
        with run.precision.autocast():
            loss = run.methods.loss(run.model(part.images), part.targets) / parts
        is_last = i == parts - 1
        if is_last:
            halfway()
        with run.exchange.averaging(sync and is_last):
            run.precision.backward(loss)
        total += loss.detach()
    return total
