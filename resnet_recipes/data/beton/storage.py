"""A .beton file as a storage: samples become rows of a batch, decoded without the interpreter's lock."""

import contextlib
import mmap
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image

from resnet_recipes.data.beton.decoder import Decode
from resnet_recipes.data.beton.file import Beton
from resnet_recipes.data.crop import Cuts
from resnet_recipes.data.loading.storage import Rows, UnreadableError

#: (epoch, indices, copies, sizes) -> Cuts; int64 [N], [N] and [N, 2].
Cutter = Callable[[int, np.ndarray, np.ndarray, np.ndarray], Cuts]

#: (image, epoch, index, copy) -> image of the same size.
Augment = Callable[[Image.Image, int, int, int], Image.Image]


class BetonStorage:
    """Decodes samples; several threads may fill rows at once.

    Each sample is compared with its CRC-32 (where the file has a sidecar) when it is read for the first time, and with
    its own header and the decoder's verdict always. `streamed` files do not fit into memory: what is next is asked for
    ahead of decoding it.
    """

    in_threads = True

    def __init__(self, beton: Beton, cutter: Cutter, decode: Decode, augment: Augment | None = None,
                 streamed: bool = False):
        self.labels = beton.labels
        self._beton, self._cutter, self._decode = beton, cutter, decode
        self._augment, self._streamed = augment, streamed
        self._content = np.asarray(beton.content)
        self._samples = np.column_stack([beton.starts, beton.lengths, beton.modes.astype(np.int64), beton.sizes])
        self._unchecked = np.full(len(beton), beton.checksums is not None)

    def path(self, index: int) -> str:
        """Return the name of a sample."""
        return f"{self._beton.path}: sample {index}"

    def fill(self, rows: Rows) -> None:
        """Write the pixels; see Storage."""
        if damage := self.damage(rows):
            index, complaint = damage
            sentence = f"{self.path(index)} is damaged: {complaint}. Convert the images again:  resnet-recipes convert"
            raise UnreadableError(index, sentence)
        if self._augment:
            for row, *key in zip(rows.pixels, rows.indices.tolist(), rows.copies.tolist(), strict=True):
                row[:] = self._augment(Image.fromarray(row), rows.epoch, *key)

    def damage(self, rows: Rows) -> tuple[int, str] | None:
        """Decode samples into the rows; return the index and the fault of the first damaged one, if any."""
        samples = self._samples[rows.indices]
        if self._beton.cut_short:
            return int(rows.indices[0]), "the file was cut short after it was opened"
        if self._streamed:
            self._announce(samples)
        if (index := self._changed(rows.indices, samples)) is not None:
            return index, "checksum mismatch"
        cuts = self._cutter(rows.epoch, rows.indices, rows.copies, samples[:, 3:])
        if damage := self._decode(samples, cuts, rows):
            place, complaint = damage
            return int(rows.indices[place]), complaint
        return None

    def _changed(self, indices: np.ndarray, samples: np.ndarray) -> int | None:
        """Return a sample that differs from its checksum, if any does; each is looked at once in this process."""
        unread = self._unchecked[indices]
        for index, (start, length) in zip(indices[unread].tolist(), samples[unread, :2].tolist(), strict=True):
            if zlib.crc32(self._content[start : start + length]) != self._beton.checksums[index]:
                return index
        self._unchecked[indices] = False
        return None

    def _announce(self, samples: np.ndarray) -> None:
        """Ask the system to read all samples at once rather than each when it is touched."""
        with contextlib.suppress(OSError):
            for start, length in samples[:, :2].tolist():
                first = start // mmap.PAGESIZE * mmap.PAGESIZE
                self._beton.content._mmap.madvise(mmap.MADV_WILLNEED, first, start + length - first)
