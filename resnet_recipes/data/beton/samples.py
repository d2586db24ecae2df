"""The samples of a .beton file as a source of images."""

import contextlib
import mmap
from pathlib import Path

import numpy as np
import simplejpeg

from resnet_recipes.data.beton.file import JPEG, Beton, open_beton
from resnet_recipes.data.images.decode import BadImageError, Pixels
from resnet_recipes.errors import NotReadyError, Problem


class Samples:
    """A Source. The engine compares each sample with its CRC-32 (where the file has a sidecar) the first time.

    Its header and the decoder's verdict are looked at every time. `streamed` files do not fit into memory: what is next
    is asked for before it is decoded.
    """

    suits_engine = True

    def __init__(self, beton: Beton, streamed: bool = False):
        self.beton, self.labels = beton, beton.labels
        self._streamed = streamed
        self._unchecked = np.full(len(beton), beton.checksums is not None)

    def __reduce__(self) -> tuple:
        return _opened_again, (self.beton.path, self.beton.digest)      # a mapping would travel as its bytes

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> str:
        """Return the name of a sample."""
        return f"{self.beton.path}: sample {index}"

    def read(self, index: int) -> Pixels:
        """Read a sample, past the mapping: a file that was cut short is told."""
        data = self.beton.sample(index)
        if complaint := self.beton.complaint(index, data):
            raise BadImageError(f"is damaged: {complaint}")
        if self.beton.modes[index] != JPEG:
            return Pixels(data.reshape(*self.beton.sizes[index], 3).copy())      # writable, as torch wants it
        try:
            return Pixels(simplejpeg.decode_jpeg(data, strict=True))
        except Exception as error:                                       # ValueError; KeyError for 4:4:1 chroma
            raise BadImageError(f"is damaged: its JPEG cannot be decoded ({error})") from None

    def advice(self) -> str:
        """Return what to do about a damaged sample."""
        return "Convert the images again:  resnet-recipes convert"

    def locate(self, indices: np.ndarray, wanted: np.ndarray) -> None:
        """Have ROW [n] point into the mapped file."""
        beton = self.beton
        starts, wanted["length"] = beton.starts[indices], beton.lengths[indices]
        if self._streamed:
            self._announce(starts, wanted["length"])
        wanted["data"] = np.asarray(beton.content).ctypes.data + starts
        wanted["raw"], wanted["size"] = beton.modes[indices] != JPEG, beton.sizes[indices]
        wanted["checked"] = self._unchecked[indices]
        if beton.checksums is not None:
            wanted["crc"] = beton.checksums[indices]

    def note_intact(self, indices: np.ndarray) -> None:
        """Compare these samples with their checksums no more."""
        self._unchecked[indices] = False

    def _announce(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        """Ask the system to read all samples at once rather than each when it is touched."""
        with contextlib.suppress(OSError):
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
                first = start // mmap.PAGESIZE * mmap.PAGESIZE
                self.beton.content._mmap.madvise(mmap.MADV_WILLNEED, first, start + length - first)


def open_unchanged(path: Path, digest: str) -> Beton:
    """Open a file; raises NotReadyError if it is another one than when the run began."""
    beton = open_beton(path)
    if digest and beton.digest != digest:
        rule = "is not the file with which the run began"
        raise NotReadyError([Problem("data.root", str(path), rule, "put the file back, or start a new run")])
    return beton


def _opened_again(path: Path, digest: str) -> Samples:
    return Samples(open_unchanged(path, digest))
