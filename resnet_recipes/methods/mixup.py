"""Convex combinations of pairs of examples."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from torch import Tensor

from resnet_recipes.base.duration import Horizon
from resnet_recipes.base.errors import Note
from resnet_recipes.base.limits import Positive
from resnet_recipes.methods.base import Batch, Method, Now, copy_to_device, encode_one_hot


@dataclass
class MixUp(Method):
    """Train on convex combinations of pairs of examples (Zhang et al., 2018, arXiv:1710.09412).

    The images become `x <- (1 - f) * x + f * x[order]`, with one fraction and one permutation per
    step and rank. The fraction is sampled from Beta(alpha, alpha) and folded into [0, 0.5], so the
    image's own label dominates. At alpha 0.2, the mean fraction is 0.10. The recipes were tuned
    without smoothing the partner's label, so label_smoothing runs before mixup. Both gradients of a
    SAM step use the same mix; Composer samples again for the second.
    """

    name = "mixup"
    cost = (
        "one gather and one interpolation of the batch; added to label_smoothing, 5% of throughput "
        "(MosaicML, Mosaic ResNet deep dive, Table 5)."
    )
    gain = (
        "0.7 points more than CutMix at 180 epochs of the prototype of Hot, and 0.5 more at 540 "
        "(deep dive, Table 4)."
    )
    avoid_when = (
        "The run is short and uses label_smoothing, which is 0.4 points better alone at 30 epochs "
        "(Table 5). An alpha of 1 instead of 0.25 costs Hot 0.8 to 1.1 points (Table 6)."
    )
    group = "mix images"
    changes = "mixes"
    # concentration of the Beta distribution, above 0
    alpha: Positive = 0.2

    def advice(self, horizon: Horizon, full_size: int, others: Collection[str]) -> Iterator[Note]:
        if "label_smoothing" in others and horizon.epochs < 60:
            yield Note(
                "mixup with label_smoothing lowers accuracy in runs under 60 epochs (75.9 instead "
                "of 76.3% at 30 epochs on ImageNet)",
                "'~methods.mixup'",
            )

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        weight = now.rng.beta(self.alpha, self.alpha)
        weight = min(weight, 1 - weight)
        order = copy_to_device(now.rng.permutation(len(batch.labels)), batch.labels.device)
        images = batch.images.lerp(batch.images[order], weight)
        return mix_labels(batch._replace(images=images), order, weight)


def mix_labels(batch: Batch, order: Tensor, weight: float) -> Batch:
    """Return a batch with targets and soft labels mixed with those at `order` [N].

    The partners have this weight; their targets are their hard labels.
    """
    partners = encode_one_hot(batch.labels[order], batch.targets.shape[1])
    return batch._replace(
        targets=batch.targets.lerp(partners, weight),
        soft_labels=batch.mix_soft_labels(lambda rows: rows[order], weight),
    )
