"""Classify image files with a trained network."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.inference import Unlabelled
from resnet_recipes.data.stream import Stream
from resnet_recipes.training.evaluate import logits_of
from resnet_recipes.training.trained import Trained

#: How many classes are named for each image, if nothing else is said.
BEST = 5


class Prediction(NamedTuple):
    """What a network takes an image for."""

    file: str
    classes: tuple[tuple[str, float], ...]  # names and probabilities, best first
    error: str = ""  # why the image could not be read; then there are no classes


def predictions(trained: Trained, paths: Sequence[str], top: int = BEST) -> Iterator[Prediction]:
    """Yield the prediction for each image file, in order; `paths` are absolute.

    It has the `top` most likely classes.

    Raises TrainingError if the network's outputs for an image are not finite numbers.
    """
    recipe, name = trained.recipe, trained.network.about.class_name
    images = Unlabelled(paths, recipe.data, recipe.batch.eval_size)
    try:
        for raw in Stream(images.batches(), trained.device):
            logits = logits_of(trained.model, raw.pixels, trained.precision, recipe.evaluation.flip)
            shares, best = logits.softmax(1).topk(min(top, logits.shape[1]))
            black, broken = raw.pixels.flatten(1).amax(1) == 0, ~logits.isfinite().all(1)
            parts = (raw.labels, black, broken, best, shares)
            for index, *row in zip(*(part.tolist() for part in parts), strict=True):
                is_black, is_broken, labels, probabilities = row
                if is_black and (error := images.reading_error(index)):
                    yield Prediction(paths[index], (), error)
                    continue
                if is_broken:
                    raise TrainingError(
                        f"{paths[index]}: the network's outputs for this image are not finite "
                        "numbers; its weights are damaged, or did not converge"
                    )
                pairs = zip(map(name, labels), probabilities, strict=True)
                yield Prediction(paths[index], tuple(pairs))
    finally:
        images.close()
