"""MixUp on some steps and CutMix on the others."""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from resnet_recipes.base.limits import OneOf, Positive, ZeroToOne
from resnet_recipes.methods.base import Batch, Method, Now
from resnet_recipes.methods.cutmix import paste, sample_box


@dataclass
class MixUpOrCutMix(Method):
    """Apply mixup or cutmix, at random for each step (Wightman et al., 2021, arXiv:2110.00476).

    Each rank chooses independently. Unlike mixup and cutmix alone, the method pairs examples as in
    timm (`flipped`: with the batch in reverse order) or torchvision (`rolled`: with the previous
    example). The fraction of mixup is not folded into [0, 0.5]. The partner's label is also
    smoothed; torchvision smooths after mixing, with the same result.
    """

    name = "mixup_or_cutmix"
    cost = "the same as mixup or cutmix."
    gain = (
        "+0.3 points over mixup alone at 600 epochs (PyTorch blog, 2021); part of A1 to A3 of timm."
    )
    avoid_when = (
        "You train a MosaicML recipe: its effect there is unknown, and cutmix alone lost "
        "0.5 to 0.7 points against mixup."
    )
    group = "mix images"
    changes = "mixes"
    mixup_alpha: Positive = 0.2  # concentration of mixup's Beta distribution, above 0
    cutmix_alpha: Positive = 1.0  # concentration of cutmix's Beta distribution, above 0
    switch: ZeroToOne = 0.5  # probability of cutmix at each step
    # flipped: in reverse order, as in timm | rolled: by one, as in torchvision
    partner: Annotated[str, OneOf("flipped", "rolled")] = "flipped"

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        images = batch.images
        others = self._choose_partners(images)
        if now.rng.random() < self.switch:
            rows, cols, weight = sample_box(images, self.cutmix_alpha, now.rng)
            mixed = paste(images, others[..., rows, cols], rows, cols)
        else:
            weight = float(now.rng.beta(self.mixup_alpha, self.mixup_alpha))
            mixed = images.lerp(others, weight)
        return batch._replace(
            images=mixed,
            targets=batch.targets.lerp(self._choose_partners(batch.targets), weight),
            soft_labels=batch.mix_soft_labels(self._choose_partners, weight),
        )

    def _choose_partners(self, rows: Tensor) -> Tensor:
        return rows.flip(0) if self.partner == "flipped" else rows.roll(1, 0)
