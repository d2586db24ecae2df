"""Pipelines for encoded images, which use the native decoder where possible."""

import numpy as np

from resnet_recipes.augment import ImageAugment
from resnet_recipes.data.base import Batching, DataConfig
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.images.memory import ShrunkImages
from resnet_recipes.data.images.python import EvalImages, Source, TrainImages
from resnet_recipes.data.loading import Pipeline
from resnet_recipes.data.loading.slots import Capacity
from resnet_recipes.data.loading.storage import Rows, Storage
from resnet_recipes.data.native import NativeDecoder, find_decoder_fault
from resnet_recipes.data.native.rows import Status
from resnet_recipes.data.order import make_balanced_order
from resnet_recipes.data.soft_labels import SoftLabelStorage


def build_train_pipeline(
    source: Source, config: DataConfig, batching: Batching, augment: ImageAugment | None, name: str
) -> Pipeline:
    """Return a pipeline of random crops; `name` identifies shared images in memory."""
    capacity = Capacity.for_training(config, batching)
    crop = TrainCrop.of(config, batching)
    cropped = TrainImages(_shrink(source, config, name), crop, augment)
    images = use_decoder(cropped, capacity.workers)
    if batching.soft_labels:
        images = SoftLabelStorage(images, batching.soft_labels)
    pipeline = Pipeline(images, capacity, config.on_bad_image == "skip")
    if config.class_balance:
        pipeline.order_epoch = make_balanced_order(source.labels, config.class_balance)
    return pipeline


def build_eval_pipeline(
    source: Source, config: DataConfig, batching: Batching, name: str = ""
) -> Pipeline:
    """Return a pipeline of center crops.

    Unreadable images are always errors, so that accuracies stay comparable.
    """
    capacity = Capacity.for_evaluation(config, batching)
    cropped = EvalImages(_shrink(source, config, name), config)
    return Pipeline(use_decoder(cropped, capacity.workers), capacity)


def _shrink(source: Source, config: DataConfig, name: str) -> Source:
    return ShrunkImages(source, int(config.memory_pixels), name) if config.memory_pixels else source


def use_decoder(images: TrainImages | EvalImages, threads: int) -> Storage:
    """Return images that the native decoder reads, if it is built and suitable; else `images`.

    If most images are not JPEGs, processes are faster than the native decoder's threads.
    """
    if find_decoder_fault() or not images.source.is_mostly_jpeg or not images.suits_decoder:
        return images
    return NativeImages(images, threads)


class NativeImages:
    """A storage with the crops and augmentation of another, read by the native decoder.

    Evaluation pixels are equal, except for images of six squares or more; see _find_center_box.
    Nearly all training pixels are within one gray level, with bicubic filters within two. Python
    fills the rows that the native decoder rejects and reports their errors.
    """

    in_threads = True

    def __init__(self, images: TrainImages | EvalImages, threads: int):
        self.labels, self.path = images.labels, images.path
        self._images = images
        self._decoder = NativeDecoder(max(1, threads))

    def fill(self, rows: Rows) -> None:
        source = self._images.source
        request = self._images.make_decoder_rows(rows)  # keeps alive the memory of its rows
        decoder_rows = request.rows
        stride = rows.pixels.strides[0]
        source.locate(rows.indices, decoder_rows)
        decoder_rows["output_size"] = rows.pixels.shape[1]
        decoder_rows["pixels"] = rows.pixels.ctypes.data + np.arange(len(decoder_rows)) * stride
        failed_rows = self._decoder.fill(decoder_rows, rows.reading)
        # the other rows were read from a small level
        source.mark_verified(rows.indices[~decoder_rows["checked"]])
        for row in failed_rows.tolist():
            part = rows.select_row(row)
            failed = decoder_rows[row : row + 1]
            if failed["status"] == Status.UNREADABLE and self._is_read_again(part, failed):
                continue
            if failed["longest"]:
                self._crop_decoded(part, failed)
            else:
                self._images.fill(part)

    def _is_read_again(self, rows: Rows, decoder_rows: np.ndarray) -> bool:
        """Return whether the native decoder can now read a file that it could not read before.

        This happens on network disks; Python would decode slightly different pixels. Raises
        UnreadableError if the file still cannot be read.
        """
        self._images.open(rows, 0)
        return not self._decoder.fill(decoder_rows, rows.reading).size

    def _crop_decoded(self, rows: Rows, decoder_rows: np.ndarray) -> None:
        """Let the native decoder crop an image that Python decodes, as later from memory."""
        pixels = self._images.open(rows, 0).pixels()
        decoder_rows["data"], decoder_rows["length"] = pixels.ctypes.data, pixels.size
        decoder_rows["size"] = pixels.shape[:2]
        decoder_rows["raw"] = True
        decoder_rows["checked"] = False
        if self._decoder.fill(decoder_rows, rows.reading).size:
            raise MemoryError
