"""The images of a source as pipelines, for training and for evaluation."""

from collections.abc import Iterator

from resnet_recipes.data.base import DataConfig, SampleAugment, Share
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.images import nvjpeg
from resnet_recipes.data.images.native import eval_images, manner, train_images
from resnet_recipes.data.images.python import TrainImages
from resnet_recipes.data.images.source import Source
from resnet_recipes.data.loading.pipeline import Pipeline
from resnet_recipes.data.loading.slots import Capacity


def train_pipeline(
    source: Source, config: DataConfig, share: Share, augment: SampleAugment | None
) -> Pipeline:
    """Return random crops, decoded by workers or by a GPU, where no `augment` can run."""
    capacity, crop = Capacity.for_training(config, share), TrainCrop.of(config, share)
    skip_bad = config.on_bad_image == "skip"
    if config.decode == "gpu":
        from resnet_recipes.data.images.decoding import Decoding
        from resnet_recipes.data.images.encoded import EncodedTrainImages

        return Decoding(
            EncodedTrainImages(TrainImages(source, crop, None, config.reduced_decode)),
            capacity,
            skip_bad,
        )
    return Pipeline(
        train_images(source, crop, augment, config.reduced_decode, capacity.workers),
        capacity,
        skip_bad,
    )


def eval_pipeline(source: Source, config: DataConfig, share: Share) -> Pipeline:
    """Return centre crops; an unreadable image is always an error, to keep accuracies comparable."""
    capacity, is_bicubic = (
        Capacity.for_evaluation(config, share),
        config.eval_interpolation == "bicubic",
    )
    return Pipeline(eval_images(source, config.eval_resize, is_bicubic, capacity.workers), capacity)


def manners(config: DataConfig) -> Iterator[str]:
    """Yield how JPEGs are decoded here, a sentence each."""
    if config.decode == "gpu":
        yield (
            f"training JPEGs are decoded on the GPU (nvJPEG, through {nvjpeg.name()}), other "
            "files and evaluation "
            "images on the CPU"
        )
    yield manner()
