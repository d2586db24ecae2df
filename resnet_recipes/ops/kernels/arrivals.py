"""Sums over many programs in one launch.

The last program to finish adds up the others' partial sums, in order.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor


@cache
def arrivals(device: torch.device) -> Tensor:
    """Return counters of finished programs, one for each column of a grid.

    The last program resets its counter.
    """
    return torch.zeros(1024, dtype=torch.int32, device=device)


@triton.jit
def last(arrivals, rows):
    """Return whether this is the last of its column's `rows` programs.

    If so, it sees what the others stored.
    """
    tl.debug_barrier()
    count = tl.atomic_add(arrivals + tl.program_id(1), 1, sem="acq_rel", scope="gpu")
    if count == rows - 1:
        tl.store(arrivals + tl.program_id(1), 0)
    return count == rows - 1
