"""The samples of a .beton file as a source of images."""

import contextlib
import mmap
from pathlib import Path

import numpy as np

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.beton.file import JPEG, Beton, half_path, open_beton
from resnet_recipes.data.beton.sidecar import halved
from resnet_recipes.data.images.decode import BadImageError, Picture, Pixels
from resnet_recipes.data.memory import available_memory


class Samples:
    """A Source.

    The engine checks each sample's CRC-32 the first time it is read, if the file has a sidecar.

    Its header and the decoder's result are checked every time. `streamed` files do not fit into
    memory: samples are requested from the disk before they are decoded.
    """

    mostly_jpeg = True

    def __init__(self, beton: Beton, small: Beton | None = None):
        """Take a file and, optionally, its small level."""
        self.beton, self.small, self.labels = beton, small, beton.labels
        self._streamed = not fits_memory(beton)
        self._unchecked = np.full(len(beton), beton.checksums is not None)

    def __reduce__(self) -> tuple:
        return open_samples, (self.beton.path, self.digest)  # a mapping would travel as its bytes

    @property
    def digest(self) -> str:
        """What changes with any sample, of both levels."""
        return f"{self.beton.digest}-{self.small.digest}" if self.small else self.beton.digest

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> str:
        """Return the name of a sample."""
        return f"{self.beton.path}: sample {index}"

    def read(self, index: int) -> Pixels:
        """Read a sample, bypassing the mapping, so that a truncated file is reported."""
        data = self.beton.sample(index)
        if complaint := self.beton.complaint(index, data):
            raise BadImageError(f"is damaged: {complaint}")
        if self.small and (complaint := self.small.complaint(index)):
            raise BadImageError(f"is damaged in {self.small.path.name}: {complaint}")
        if self.beton.modes[index] != JPEG:
            # writable, as torch wants it
            return Pixels(data.reshape(*self.beton.sizes[index], 3).copy())
        return Picture(data.tobytes())

    def advice(self) -> str:
        """Return what to do about a damaged sample."""
        return "Convert the images again:  resnet-recipes convert"

    def locate(self, indices: np.ndarray, wanted: np.ndarray) -> None:
        """Make the engine's rows [n] point into the mapped file."""
        if self._streamed:
            self._announce(self.beton.starts[indices], self.beton.lengths[indices])
        _locate(self.beton, indices, wanted)
        wanted["checked"] = self._unchecked[indices]
        if self.small:  # small enough to be checked every time
            _locate(self.small, indices, wanted["small"])

    def mark_verified(self, indices: np.ndarray) -> None:
        """Stop checking the checksums of these samples."""
        self._unchecked[indices] = False

    def _announce(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        """Ask the system to read all samples at once instead of one by one on access."""
        with contextlib.suppress(OSError):
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
                first = start // mmap.PAGESIZE * mmap.PAGESIZE
                self.beton.content._mmap.madvise(mmap.MADV_WILLNEED, first, start + length - first)


def open_samples(path: Path, digest: str = "") -> Samples:
    """Open a file and its small level.

    Raises NotReadyError if either has changed since the run began.
    """
    beton, half = open_beton(path), half_path(path)
    samples = Samples(beton, _small(beton, open_beton(half)) if half.exists() else None)
    if digest and samples.digest != digest:
        rule = "is not the file that the run began with"
        raise NotReadyError.of(
            "data.root", str(path), rule, "put the file back, or start a new run"
        )
    return samples


def fits_memory(beton: Beton) -> bool:
    """Return whether the page cache can hold the file, with a tenth of the memory to spare."""
    return beton.content.size < 0.9 * available_memory()


def _small(beton: Beton, small: Beton) -> Beton:
    """Return the small level after checking that it belongs to this file."""
    same = np.array_equal(small.labels, beton.labels) and np.array_equal(
        small.sizes, (beton.sizes + 1) // 2
    )
    if same and beton.sidecar and small.sidecar:  # images of equal sizes may have been edited
        same = small.sidecar.source_sha256 == halved(beton.sidecar.source_sha256)
    if not same or small.checksums is None:
        rule = f"does not hold the images of {beton.path.name} at half their size"
        raise NotReadyError.of(str(small.path), None, rule, f"convert again, or:  rm {small.path}")
    return small


def _locate(beton: Beton, indices: np.ndarray, wanted: np.ndarray) -> None:
    wanted["data"] = np.asarray(beton.content).ctypes.data + beton.starts[indices]
    wanted["length"], wanted["size"] = beton.lengths[indices], beton.sizes[indices]
    wanted["raw"] = beton.modes[indices] != JPEG
    if beton.checksums is not None:
        wanted["crc"] = beton.checksums[indices]
