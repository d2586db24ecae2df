"""The images of a source as pipelines, for training and for evaluation."""

from resnet_recipes.data.base import DataConfig, SampleAugment, Share
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.images.native import natively
from resnet_recipes.data.images.python import EvalImages, Source, TrainImages
from resnet_recipes.data.loading.pipeline import Pipeline
from resnet_recipes.data.loading.slots import Capacity
from resnet_recipes.data.loading.stored import Taught
from resnet_recipes.data.order import sampled


def train_pipeline(
    source: Source, config: DataConfig, share: Share, augment: SampleAugment | None
) -> Pipeline:
    """Return random crops."""
    capacity, crop = Capacity.for_training(config, share), TrainCrop.of(config, share)
    cropped = TrainImages(source, crop, augment, config.reduced_decode)
    images = natively(cropped, capacity.workers)
    if share.stored:
        images = Taught(images, share.stored)
    pipeline = Pipeline(images, capacity, config.on_bad_image == "skip")
    if config.class_share:
        pipeline.permute = sampled(source.labels, config.class_share)
    return pipeline


def eval_pipeline(source: Source, config: DataConfig, share: Share) -> Pipeline:
    """Return centre crops.

    An unreadable image is always an error, to keep accuracies comparable.
    """
    capacity = Capacity.for_evaluation(config, share)
    cropped = EvalImages(source, config.eval_resize, config.eval_interpolation == "bicubic")
    return Pipeline(natively(cropped, capacity.workers), capacity)
