"""The largest micro-batch that fits in a GPU's memory, found by trying."""

import gc
from dataclasses import replace

import torch

from resnet_recipes.backbones import first_line
from resnet_recipes.base.errors import TrainingError
from resnet_recipes.planning.plan import Plan
from resnet_recipes.training.build import build
from resnet_recipes.training.distributed import Rank

#: The share of the memory that may be used. The rest is for what is not tried: the state of the
#: optimizer, the exchange between ranks, evaluations and CUDA graphs.
SHARE = 0.85


def largest(plan: Plan, rank: Rank) -> int:
    """Return the largest divisor of a rank's examples that fits as one micro-batch.

    Each is tried with the gradient of a step at the largest image size, until one fits. Raises
    TrainingError if none does.
    """
    divisors = (size for size in range(plan.rank_size, 0, -1) if plan.rank_size % size == 0)
    for size in divisors:
        if not (reason := _misfit(plan, rank, size)):
            return size
        gc.collect()  # the run that did not fit
        torch.cuda.empty_cache()
    raise TrainingError(f"not even one image can be computed on this GPU: {reason}")


def _misfit(plan: Plan, rank: Rank, size: int) -> str:
    """Return why a micro-batch does not fit, or ""."""
    batch = replace(plan.recipe.batch, bn_size=size)
    try:
        build(replace(plan, recipe=replace(plan.recipe, batch=batch)), rank).close()
    except TrainingError as error:
        if isinstance(error.__cause__, torch.OutOfMemoryError):
            return str(error)
        raise
    except RuntimeError as error:  # such as "unable to find an engine", for 2^31 values in a tensor
        return first_line(error)
    return ""
