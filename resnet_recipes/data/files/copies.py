"""Find validation images that are copies of training images, from a small sample."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from resnet_recipes.data.files.listing import READ_THREADS, Listing
from resnet_recipes.data.images.decode import BadImageError, read_file

MAX_VAL_IMAGES = 32  # validation images that are read
_MAX_COMPARED = 5  # training images of the same size that are read for each
_MAX_CANDIDATES = 1000  # training images of the same size whose names are compared
_HEAD_BYTES = 8  # bytes at the start of a file; all zero if its content has not been fetched yet


def find_copies(train: Listing, val: Listing) -> list[str]:
    """Return the copies in an evenly spread sample of at most MAX_VAL_IMAGES validation images.

    A training image is read only if its size equals that of a validation image; an image of the
    same name is read first.
    """
    last = len(val) - 1
    count = min(len(val), MAX_VAL_IMAGES)
    chosen = np.unique(np.linspace(0, last, count).astype(int)).tolist()

    def is_copy(index: int) -> bool:
        path = val.path(index)
        name = val.name(index)
        same_size = np.flatnonzero(train.sizes == val.sizes[index])[:_MAX_CANDIDATES].tolist()
        same_size.sort(key=lambda other: train.name(other) != name)
        others = [other for other in map(train.path, same_size[:_MAX_COMPARED]) if other != path]
        return bool(others) and _is_among(path, others)

    with ThreadPoolExecutor(READ_THREADS) as pool:
        are_copies = list(pool.map(is_copy, chosen))
    return [val.path(index) for index, copied in zip(chosen, are_copies, strict=True) if copied]


def _is_among(path: str, others: list[str]) -> bool:
    try:
        content = read_file(path)
        return any(content[:_HEAD_BYTES]) and any(read_file(other) == content for other in others)
    except BadImageError:  # decoding the image reports the error
        return False
