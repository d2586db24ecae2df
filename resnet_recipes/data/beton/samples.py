"""The samples of a .beton file as an image source, and the orders that suit its layout."""

import contextlib
import mmap
from pathlib import Path

import numpy as np

from resnet_recipes.base.cores import get_available_memory
from resnet_recipes.base.errors import Command, Fix, Hint, NotReadyError, Problem, Value
from resnet_recipes.base.text import format_bytes
from resnet_recipes.data.beton import JPEG, Beton, get_half_path, open_beton
from resnet_recipes.data.beton.sidecar import make_half_source
from resnet_recipes.data.images.decode import BadImageError, Picture, Pixels
from resnet_recipes.data.order import EpochOrder
from resnet_recipes.data.root import CONVERT_HINT


class Samples:
    """A Source of the samples of a .beton file.

    If the file has a sidecar, the native decoder checks each sample's CRC-32 when it is first read.
    The header and the decoder's result are checked every time. If the file does not fit into
    memory, samples are requested from disk before they are decoded.
    """

    is_mostly_jpeg, can_skip = True, False

    def __init__(self, beton: Beton, small: Beton | None = None):
        """Read from a file and, optionally, its small level."""
        self.beton, self.small, self.labels = beton, small, beton.labels
        self._streamed = not fits_memory(beton)
        self._unchecked = np.full(len(beton), beton.checksums is not None)

    def __reduce__(self) -> tuple:
        return open_samples, (self.beton.path, self.digest)  # a mapping would pickle as its bytes

    @property
    def digest(self) -> str:
        """The digest of the file, and of its small level if it has one."""
        return f"{self.beton.digest}-{self.small.digest}" if self.small else self.beton.digest

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> str:
        return f"{self.beton.path}: sample {index}"

    def read(self, index: int) -> Pixels:
        """Read a sample, bypassing the mapping, so that a truncated file is reported."""
        data = self.beton.sample(index)
        if complaint := self.beton.describe_damage(index, data):
            raise BadImageError(f"is damaged: {complaint}")
        if self.small and (complaint := self.small.describe_damage(index)):
            raise BadImageError(f"is damaged in {self.small.path.name}: {complaint}")
        if self.beton.modes[index] != JPEG:
            # a copy is writable, as torch requires
            return Pixels(data.reshape(*self.beton.sizes[index], 3).copy())
        return Picture(data.tobytes())

    def fix(self) -> Fix:
        sidecar = self.beton.sidecar
        return sidecar.make_repair_command(self.beton.path) if sidecar else CONVERT_HINT

    def locate(self, indices: np.ndarray, decoder_rows: np.ndarray) -> None:
        if self._streamed:
            self._prefetch(self.beton.starts[indices], self.beton.lengths[indices])
        _locate_samples(self.beton, indices, decoder_rows)
        decoder_rows["checked"] = self._unchecked[indices]
        if self.small:  # small enough to be checked every time
            _locate_samples(self.small, indices, decoder_rows["small"])

    def mark_verified(self, indices: np.ndarray) -> None:
        """Skip the checksums of these samples from now on."""
        self._unchecked[indices] = False

    def _prefetch(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        """Ask the system to read all samples at once, not one by one on access."""
        with contextlib.suppress(OSError):
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
                first = start // mmap.PAGESIZE * mmap.PAGESIZE
                self.beton.mapping.madvise(mmap.MADV_WILLNEED, first, start + length - first)


def open_samples(path: Path, digest: str = "") -> Samples:
    """Open a file and its small level.

    Raises NotReadyError if either cannot be used, or has changed since the run started.
    """
    beton = open_beton(path)
    half = get_half_path(path)
    samples = Samples(beton, _open_small_level(beton, open_beton(half)) if half.exists() else None)
    if digest and samples.digest != digest:
        clause, hint = "has changed since the run started", "put the file back, or start a new run"
        raise NotReadyError.of("data.root", str(path), clause, Hint(hint))
    return samples


def fits_memory(beton: Beton) -> bool:
    """Return whether the page cache can hold the file, with 10% of the memory to spare."""
    return beton.content.size < 0.9 * get_available_memory()


def _open_small_level(beton: Beton, small: Beton) -> Beton:
    """Return the small level after checking that it belongs to this file."""
    is_same = np.array_equal(small.labels, beton.labels)
    is_same &= np.array_equal(small.sizes, (beton.sizes + 1) // 2)
    if beton.sidecar and small.sidecar:  # images of equal sizes may have been edited
        is_same &= small.sidecar.source_sha256 == make_half_source(beton.sidecar.source_sha256)
    if not is_same or small.checksums is None:
        clause = f"does not hold the images of {beton.path.name} at half their size"
        raise NotReadyError.at(
            small.path, clause, (Hint("convert again"), Command(f"rm {small.path}"))
        )
    return small


def _locate_samples(beton: Beton, indices: np.ndarray, decoder_rows: np.ndarray) -> None:
    decoder_rows["data"] = beton.content.ctypes.data + beton.starts[indices]
    decoder_rows["length"] = beton.lengths[indices]
    decoder_rows["size"] = beton.sizes[indices]
    decoder_rows["raw"] = beton.modes[indices] != JPEG
    if beton.checksums is not None:
        decoder_rows["crc"] = beton.checksums[indices]


#: Pages whose samples are shuffled together. A constant, because all ranks need the same order.
WINDOW_PAGES = 256

#: Part of the seed of the page order, so that no other generator repeats its numbers.
_PAGE_ORDER_SEED = 0x70616765


def make_quasi_random_order(beton: Beton) -> EpochOrder:
    """Return a training order that needs only a few GB of the file in memory at a time.

    The result is a function (seed, epoch, examples) -> permutation. Pages are in random order, and
    the samples of every 256 pages (2 GiB; 14 thousand ImageNet images) are shuffled together. All
    ranks on a machine read the same pages at the same time and share them through the page cache.
    """
    pages = np.unique(beton.starts // beton.page_size, return_inverse=True)[1]

    def order(seed: int, epoch: int, examples: int) -> np.ndarray:
        rng = np.random.default_rng((seed, epoch, 0, _PAGE_ORDER_SEED))
        window = rng.permutation(pages.max() + 1)[pages] // WINDOW_PAGES
        return np.lexsort((rng.random(examples), window))

    return order


def find_quasi_random_problem(beton: Beton) -> Problem | None:
    """Return a problem if this machine cannot read the file in quasi-random order, or None."""
    # one window in use, and the next being read
    needed = 2 * WINDOW_PAGES * beton.page_size
    free = get_available_memory()
    if needed > free and beton.content.size > free:
        clause = (
            f"needs {format_bytes(needed)} of memory for {2 * WINDOW_PAGES} pages of "
            f"{beton.path.name}, and {format_bytes(free)} are free"
        )
        return Problem("data.order", "quasi_random", clause, Value("random"))
    if is_sorted_by_class(beton):
        clause = (
            f"would make batches of a few classes each: {beton.path.name} is stored class by class"
        )
        fix = (Value("random"), Hint("or convert it again: the order is shuffled by default"))
        return Problem("data.order", "quasi_random", clause, fix)
    return None


def is_sorted_by_class(beton: Beton) -> bool:
    """Return whether neighbors in the file mostly have the same class (not shuffled)."""
    classes = len(np.unique(beton.labels))
    if classes < 2 or len(beton) < 2 * classes:
        return False
    matches = np.mean(beton.labels[1:] == beton.labels[:-1])
    return bool(matches > (1 + np.mean(np.bincount(beton.labels)[beton.labels]) / len(beton)) / 2)
