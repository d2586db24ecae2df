"""Convert lack of GPU memory to errors that a user can act on."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from resnet_recipes.base.errors import Fix, TrainingError


@contextmanager
def explain_lack_of_memory(images: str, fix: Fix) -> Iterator[None]:
    """Raise TrainingError with `fix` if the memory is too small for `images`, such as "a batch"."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainingError(f"out of memory: {images} does not fit on this GPU", fix) from error
