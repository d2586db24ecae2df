"""Weight examples by the rarity of their class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from resnet_recipes.base.limits import BelowOne, OneOf
from resnet_recipes.base.names import DOCS
from resnet_recipes.methods.base import Batch, Method, Now, copy_to_device


@dataclass
class ClassWeights(Method):
    """Weight each example's loss by the rarity of its class (Cui et al., 2019, arXiv:1901.05555).

    A class with n training images has the weight `(1 - beta) / (1 - beta^n)`, the inverse of its
    effective number. With "inverse", it is 1 / n. A mixed or smoothed target has the mean weight of
    its classes. Weights are scaled to a mean of 1 over the training images; the paper scales them
    to a mean of 1 over classes. With data.sampling, the mean over an epoch is not 1.
    """

    name = "class_weights"
    cost = "none."
    changes = "labels"
    gain = (
        "fewer errors on CIFAR and iNaturalist with very unequal classes (Cui et al., 2019). "
        "Measured here: +8.1 points of balanced accuracy on ten such classes of CIFAR-10, where "
        f"data.sampling=balanced gained 13.2 ({DOCS}/lab/unequal_classes.html)."
    )
    avoid_when = (
        "Classes have nearly the same number of images, or you need the highest top-1 over all "
        "images."
    )
    # effective: by the effective number of images | inverse: 1 / n
    rule: Annotated[str, OneOf("effective", "inverse")] = "effective"
    beta: BelowOne = 0.999  # beta of the effective number; 0: equal weights, close to 1: inverse

    def __post_init__(self) -> None:
        self._weights: np.ndarray | None = None

    def with_counts(self, class_images: Sequence[int]) -> "ClassWeights":
        method = ClassWeights(self.rule, self.beta)
        method._weights = self.weights(class_images) if len(class_images) else None
        return method

    def weights(self, class_images: Sequence[int]) -> np.ndarray:
        """Return the weight of each class, float32 [K]; 0 for classes without images."""
        counts = np.asarray(class_images, dtype=np.float64)
        effective = counts if self.rule == "inverse" else 1 - self.beta**counts
        weights = np.divide(1, effective, out=np.zeros_like(counts), where=counts > 0)
        return (weights * counts.sum() / (weights @ counts)).astype(np.float32)

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        if self._weights is None:
            return batch
        weights = batch.targets @ copy_to_device(self._weights, batch.targets.device)
        return batch._replace(weights=weights if batch.weights is None else batch.weights * weights)
