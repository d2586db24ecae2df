"""Triton kernels, launched with little host overhead.

Import them only on first use, because Triton does not support every platform. Triton 3.6 cannot
unpack a tuple of tuples in one assignment.
"""

from typing import Any

import triton

#: Number of programs along each axis of a launch.
Grid = tuple[int, int, int]

_compiled: dict[tuple, Any] = {}


def launch(
    kernel: triton.JITFunction,
    grid: Grid,
    key: tuple,
    *args: object,
    **options: object,
) -> None:
    """Launch `kernel`; all calls with the same `key` must need the same compiled variant.

    At every launch Triton takes about 20 us to find the variant for the arguments; a lookup
    by `key` takes 7 us.
    """
    key = (id(kernel), *key)
    if compiled := _compiled.get(key):
        compiled[grid](*args)
    else:
        _compiled[key] = kernel[grid](*args, **options)
