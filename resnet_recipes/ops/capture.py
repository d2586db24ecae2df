"""What is asked of a GPU, captured as a CUDA graph."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def capture(pool: Any = None) -> Iterator[torch.cuda.CUDAGraph]:
    """Capture what this thread asks of the current GPU, in a graph with its own or a given pool.

    Other threads may pin memory meanwhile. A capture that fails leaves nothing but its error.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    pool = pool or torch.cuda.graph_pool_handle()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield graph
    except Exception:
        # older versions of torch leave the capture's stream in place, and its random numbers
        torch.cuda.set_stream(stream)
        random = torch.cuda.default_generators[torch.cuda.current_device()]
        random.graphsafe_set_state(random.clone_state())
        _close_by_private_function(pool)
        raise


def _close_by_private_function(pool: tuple[int, int]) -> None:
    """Close the memory pool of a failed capture.

    Torch may have left it open, and would then hold back memory that other streams have used.
    """
    with suppress(RuntimeError, AttributeError):  # it is closed, or torch has no such function
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
