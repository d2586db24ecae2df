"""Batches whose JPEGs a device decodes while the step before them is computed."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.base.errors import NotReadyError, Problem, TrainingError
from resnet_recipes.data.base import RawBatch
from resnet_recipes.data.images import nvjpeg
from resnet_recipes.data.images.encoded import EncodedTrainImages
from resnet_recipes.data.loading.pipeline import Pipeline
from resnet_recipes.data.loading.slots import Capacity
from resnet_recipes.data.loading.storage import Rows, UnreadableError, fill
from resnet_recipes.data.order import Job
from resnet_recipes.ops import crops
from resnet_recipes.ops.contact import fault
from resnet_recipes.ops.host import send

#: Bytes of the images that are decoded at once, before they are cropped.
AT_ONCE = 1 << 28

#: Pixels of a photograph and bytes of its file: rounded means of 400 of ImageNet's.
PIXELS, FILE = 211_000, 114_000


def device_memory(images: int, side: int) -> int:
    """Return the bytes of a device that Decoding takes for batches of `images` crops of `side` pixels.

    A group is all JPEGs of a batch, or as many as fill AT_ONCE bytes at 3 bytes per pixel. It
    exists three times: as nvJPEG's planes before colour conversion (assumed, because nvJPEG does
    not show them), as whole images, and as one tensor of these from which the crops are made. The
    group's files and one batch of crops, besides the one in use, come on top. Sizes are unknown
    until the images are read, so PIXELS and FILE are assumed.
    """
    group = min(images, AT_ONCE / (3 * PIXELS))
    return round(group * (3 * 3 * PIXELS + FILE)) + images * 3 * side**2


class Decoding(Pipeline):
    """A pipeline that ends on the device: JPEGs are decoded there, and cropped, resized and mirrored in one launch.

    nvJPEG's bindings wait for the device, so a thread with its own stream calls them, one batch
    ahead; the trainer never waits for it as long as it keeps up.
    """

    def __init__(self, storage: EncodedTrainImages, capacity: Capacity, skip_bad: bool = False):
        """Raise NotReadyError if nvJPEG does not work on this GPU."""
        super().__init__(storage, capacity, skip_bad)
        self._images, self._skip_bad, self._crops = storage.images, skip_bad, crops.plain
        self._device, self._thread = torch.device("cpu"), ThreadPoolExecutor(1, "decoder")
        if torch.cuda.is_initialized():
            self._device = torch.device("cuda", torch.cuda.current_device())
            self._meet()
            self._thread.submit(_take_stream, self._device).result()

    def run(self, jobs: Iterable[Job]) -> Iterator[RawBatch]:
        """Yield the batch of every job in order, on the device; a new run ends an earlier one."""
        self._thread.submit(int).result()  # what an earlier run has asked for is done
        return self._ahead(self.filled(jobs))

    def close(self) -> None:
        """Stop the workers and the thread; safe to call twice."""
        super().close()
        self._thread.shutdown()

    def _meet(self) -> None:
        """Try what the device is to do."""
        if why := nvjpeg.fault(self._device):
            self.close()
            raise NotReadyError(
                [
                    Problem(
                        "data.decode",
                        "gpu",
                        f"nvJPEG does not work through {nvjpeg.name()}: {why}",
                        "pip install --upgrade torchcodec, or data.decode=cpu",
                    )
                ]
            )
        if why := fault(crops, self._device, torch.float32, self._device):
            self.notes.append(
                "the kernel of crops cannot be used on this GPU, so torch's own "
                f"operations are: {why}"
            )
        else:
            self._crops = crops.fused

    def _ahead(self, filled: Iterator[Rows]) -> Iterator[RawBatch]:
        ahead = self._thread.submit(self._next, filled)
        while (batch := ahead.result()) is not None:
            ahead = self._thread.submit(self._next, filled)
            yield batch

    def _next(self, filled: Iterator[Rows]) -> RawBatch | None:
        """Wait for the next rows and return them as a batch that any stream may use; None at the end."""
        if (rows := next(filled, None)) is None:
            return None
        side = rows.pixels.shape[1]
        pixels = torch.empty(
            len(rows.indices), side, side, 3, dtype=torch.uint8, device=self._device
        )
        for group in _groups(rows):
            self._decode(rows, group, pixels)
        if len(whole := np.flatnonzero(rows.parcels["length"] == 0)):
            pixels[send(whole, self._device)] = torch.from_numpy(rows.pixels[whole]).to(
                self._device
            )
        labels = torch.from_numpy(rows.labels.copy()).to(self._device)
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        return RawBatch(pixels.permute(0, 3, 1, 2), labels)

    def _decode(self, rows: Rows, group: np.ndarray, pixels: Tensor) -> None:
        """Write the crops of some rows into `pixels`; those that the device cannot decode become pixels of their rows.

        One bad image fails its group, which is then decoded image by image.
        """
        lengths, files, cuts = (rows.parcels[name] for name in ("length", "data", "cut"))
        cuts = cuts[group]
        try:
            images = nvjpeg.decoded([files[row, : lengths[row]] for row in group], self._device)
            if [image.shape[1:] for image in images] != [
                tuple(size) for size in cuts[:, :2].tolist()
            ]:
                raise RuntimeError("an image is not of the size in its header")
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            for row in group:
                if len(group) > 1:
                    self._decode(rows, np.array([row]), pixels)
                else:
                    self._decode_here(rows, int(row))
            return
        starts = np.cumsum([0, *(image.numel() for image in images[:-1])])
        cuts = send(np.column_stack([starts, cuts]), self._device)
        flat = torch.cat([image.flatten() for image in images])
        pixels[send(group, self._device)] = self._crops(flat, cuts, pixels.shape[1])

    def _decode_here(self, rows: Rows, row: int) -> None:
        """Let the decoder of workers have the last word on an image."""
        rows.parcels["length"][row] = 0
        try:
            self._skipped.update(fill(self._images, rows.only(row), self._skip_bad))
        except UnreadableError as error:
            raise TrainingError(str(error)) from None


def _groups(rows: Rows) -> Sequence[np.ndarray]:
    """Return the rows that have JPEGs, in groups that are decoded together."""
    encoded = np.flatnonzero(rows.parcels["length"])
    before = (
        np.cumsum(3 * rows.parcels["cut"][encoded, 0] * rows.parcels["cut"][encoded, 1]) // AT_ONCE
    )
    return [group for group in np.split(encoded, np.flatnonzero(np.diff(before)) + 1) if len(group)]


def _take_stream(device: torch.device) -> None:
    """Give this thread its own stream on a GPU from now on."""
    torch.cuda.set_device(device)
    torch.cuda.set_stream(torch.cuda.Stream(device))
