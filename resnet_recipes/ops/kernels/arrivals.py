"""Sums over many programs in one launch: the last program to arrive adds up what the others have stored, in order."""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor


@cache
def arrivals(device: torch.device) -> Tensor:
    """Return a counter of arrived programs for each column of a grid; the last program leaves it at zero."""
    return torch.zeros(1024, dtype=torch.int32, device=device)


@triton.jit
def last(arrivals, rows):
    """Tell whether this is the last of the `rows` programs of its column, which sees what the others have stored."""
    tl.debug_barrier()
    count = tl.atomic_add(arrivals + tl.program_id(1), 1, sem="acq_rel", scope="gpu")
    if count == rows - 1:
        tl.store(arrivals + tl.program_id(1), 0)
    return count == rows - 1
