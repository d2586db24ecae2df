"""The `torchvision` backend: class folders, with torchvision's reference crops and sizes."""

from resnet_recipes.data.base import DataConfig, DataFacts, SampleAugment, Share
from resnet_recipes.data.files.images import Files
from resnet_recipes.data.files.listing import Tell
from resnet_recipes.data.files.survey import survey
from resnet_recipes.data.images import eval_pipeline, train_pipeline
from resnet_recipes.data.images.native import with_decoder
from resnet_recipes.data.loading.pipeline import Pipeline


def measure(config: DataConfig, tell: Tell) -> DataFacts:
    """Count the images and classes. Raises NotReadyError with all problems found."""
    return with_decoder(survey(config, tell))


def open_train(
    config: DataConfig, facts: DataFacts, share: Share, augment: SampleAugment | None
) -> Pipeline:
    """Open the training images."""
    return train_pipeline(Files.of(config, "train", facts.train_digest), config, share, augment)


def open_eval(config: DataConfig, facts: DataFacts, share: Share) -> Pipeline:
    """Open the evaluation images."""
    return eval_pipeline(Files.of(config, "val", facts.eval_digest), config, share)
