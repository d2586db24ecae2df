"""Find the largest micro-batch that fits in GPU memory."""

import gc
from dataclasses import replace

import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.base.text import get_first_line
from resnet_recipes.planning.plan import Plan
from resnet_recipes.training.build import build
from resnet_recipes.training.distributed import Rank

#: Fraction of GPU memory that a trial may use. The rest is for the optimizer state, the all-reduce,
#: evaluation and CUDA graphs, which a trial does not include.
USABLE_MEMORY_FRACTION = 0.85


def find_micro_batch(plan: Plan, rank: Rank) -> int:
    """Return the largest divisor of a rank's batch size that fits in memory as one micro-batch.

    Tries each divisor with the gradient of one step at the largest image size, until one fits.
    Raises TrainingError if none does.
    """
    divisors = (size for size in range(plan.rank_size, 0, -1) if plan.rank_size % size == 0)
    for size in divisors:
        if not (reason := _find_memory_error(plan, rank, size)):
            return size
        gc.collect()  # frees the run that did not fit
        torch.cuda.empty_cache()
    raise TrainingError(f"not even one image can be computed on this GPU: {reason}")


def _find_memory_error(plan: Plan, rank: Rank, size: int) -> str:
    batch = replace(plan.recipe.batch, bn_size=size)
    try:
        build(replace(plan, recipe=replace(plan.recipe, batch=batch)), rank).close()
    except TrainingError as error:
        if isinstance(error.__cause__, torch.OutOfMemoryError):
            return error.statement
        raise
    except RuntimeError as error:  # such as "unable to find an engine", for 2^31 values in a tensor
        return get_first_line(error)
    return ""
