"""Operations of an augmentation for rows of the native engine."""

from collections.abc import Sequence

import numpy as np

from resnet_recipes.data.base import Step
from resnet_recipes.data.native.rows import OPERATION, OPERATIONS

_KINDS = {name: kind for kind, name in enumerate(OPERATIONS)}


def put_steps(rows: np.ndarray, steps: Sequence[Sequence[Step]]) -> np.ndarray:
    """Make ROW [N] apply these steps, one list per row; return the memory that the rows point to."""
    counts = np.array([len(of_image) for of_image in steps])
    operations = np.zeros(counts.sum(), OPERATION)
    for operation, (name, values) in zip(operations, (step for of_image in steps for step in of_image), strict=True):
        operation["kind"] = _KINDS[name]
        operation["values"][:len(values)] = values
    rows["operation_count"] = counts
    rows["operations"] = operations.ctypes.data + (np.cumsum(counts) - counts) * OPERATION.itemsize
    return operations
