"""Capture work on a GPU as a CUDA graph."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def capture(pool: Any = None) -> Iterator[torch.cuda.CUDAGraph]:
    """Capture this thread's work on the current GPU in a graph, with a new memory pool or `pool`.

    Other threads may pin memory meanwhile. A failed capture has no effect other than its error.
    """
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.current_stream()
    pool = pool or torch.cuda.graph_pool_handle()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield graph
    except Exception:
        # older versions of torch do not restore the stream and the random generator
        torch.cuda.set_stream(stream)
        random = torch.cuda.default_generators[torch.cuda.current_device()]
        random.graphsafe_set_state(random.clone_state())
        _close_by_private_function(pool)
        raise


def _close_by_private_function(pool: tuple[int, int]) -> None:
    """Close the memory pool of a failed capture with a private torch function.

    torch may leave it open and would then not reuse memory of other streams.
    """
    # fails if the pool is closed, or torch has no such function
    with suppress(RuntimeError, AttributeError):
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
