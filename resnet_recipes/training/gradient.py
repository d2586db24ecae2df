"""The gradient of one step's batch: the only module that knows how it is computed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.base import normalize
from resnet_recipes.methods.base import Batch, Now
from resnet_recipes.training.run import Run

#: Add a batch's gradient to `.grad`, averaged over ranks if asked to; return its losses [N].
ComputeGradient = Callable[[Batch, bool], Tensor]


def gradient_of(run: Run) -> ComputeGradient:
    """Return the function that computes this run's gradients."""
    compute = partial(eager, run)
    if run.graphs is not None:
        compute = partial(run.graphs.gradient, compute)
    compiles = run.rank.device.type == "cuda" or run.plan.recipe.precision.compile
    return partial(watched, run, compute) if compiles else compute


def watched(run: Run, compute: ComputeGradient, batch: Batch, sync: bool = True) -> Tensor:
    """Compute a gradient, and record how long it takes the host."""
    with _fitting(run, batch.images.shape[-1]), run.compiling.gradient(batch.images.shape):
        return compute(batch, sync)


def rehearse(run: Run) -> None:
    """Compute and discard a step's gradient at the largest size, to show a lack of memory at once.

    Of the methods, those that change the batch act on it: a teacher needs memory, too.
    """
    plan, device, side = run.plan, run.rank.device, max(run.plan.sizes)
    epoch = plan.sizes.index(side)
    now = Now.at(epoch * plan.steps_per_epoch, plan.total_steps, plan.steps_per_epoch)
    loaded = plan.loader_pixels[epoch] if plan.loader_pixels else plan.recipe.data.train_size
    torch.backends.cudnn.benchmark = side in run.searches
    buffers = list(run.model.buffers())
    kept = [buffer.clone() for buffer in buffers]
    pixels = torch.zeros(plan.rank_size, 3, loaded, loaded, dtype=torch.uint8, device=device)
    labels = torch.zeros(plan.rank_size, dtype=torch.int64, device=device)
    with _fitting(run, side):
        with torch.no_grad():
            batch = Batch.of(normalize(pixels), labels, plan.num_classes)
            batch = run.methods.transform_batch(batch, now)
        eager(run, batch, sync=False)
    run.optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, value in zip(buffers, kept, strict=True):
            buffer.copy_(value)


def eager(
    run: Run, batch: Batch, sync: bool = True, halfway: Callable[[], object] = lambda: None
) -> Tensor:
    """Compute a gradient kernel by kernel; return the examples' losses, float32 [N].

    Call `halfway` between the last micro-batch's forward and backward pass.
    """
    parts, found = run.plan.microbatches, []
    for i, part in enumerate(batch.split(parts)):
        images = part.images.detach()  # no view: torch.compile makes a graph for each kind of view
        with run.precision.autocast():
            losses = run.methods.losses(run.model(images), part)
            loss = (losses if part.weights is None else losses * part.weights).mean()
            loss = loss / parts if parts > 1 else loss
        is_last = i == parts - 1
        if is_last:
            halfway()
        with run.exchange.averaging(sync and is_last):
            run.precision.backward(loss)
        found.append(losses.detach())
    return torch.cat(found)


@contextmanager
def _fitting(run: Run, side: int) -> Iterator[None]:
    """Raise TrainingError, with what to type, if images of `side` pixels do not fit in memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        size = run.plan.bn_size
        smaller = [each for each in range(1, size // 2 + 1) if run.plan.rank_size % each == 0]
        less = "needs less and barely changes the result"
        fix = f"batch.bn_size={smaller[-1]} {less}" if smaller else "make them smaller"
        why = f"a micro-batch of {size} images of {side} px does not fit on this GPU"
        raise TrainingError(f"out of memory: {why}; {fix}") from error
