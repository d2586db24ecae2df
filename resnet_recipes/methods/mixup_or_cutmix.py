"""MixUp on some steps and CutMix on the others."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from resnet_recipes.errors import Problem
from resnet_recipes.methods.base import Batch, Method, Now
from resnet_recipes.methods.cutmix import CutMix
from resnet_recipes.methods.mixup import MixUp


@dataclass
class MixUpOrCutMix(Method):
    """Draw at every step whether mixup or cutmix acts on the batch (Wightman et al., 2021, arXiv:2110.00476).

    Each rank draws for itself. What the chosen one does is written on its own card, `mixup` or `cutmix`.
    """

    name: ClassVar[str] = "mixup_or_cutmix"
    cost: ClassVar[str] = "that of the two."
    gain: ClassVar[str] = "+0.3 points over mixup alone at 600 epochs (PyTorch blog, 2021); part of timm's A1 to A3."
    hurts: ClassVar[str] = (
        "not measured inside the MosaicML recipes, where cutmix alone lost 0.5 to 0.7 points against mixup."
    )
    conflicts: ClassVar[frozenset[str]] = frozenset({"mixup", "cutmix"})
    mixup_alpha: float = 0.2            # concentration of mixup's Beta distribution, above 0
    cutmix_alpha: float = 1.0           # concentration of cutmix's Beta distribution, above 0
    switch: float = 0.5                 # share of the steps that use cutmix

    def problems(self) -> Iterator[Problem]:
        for key in ("mixup_alpha", "cutmix_alpha"):
            if not getattr(self, key) > 0:
                yield Problem(key, getattr(self, key), "must be positive")
        if not 0 <= self.switch <= 1:
            yield Problem("switch", self.switch, "must be between 0 and 1")

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        method = CutMix(self.cutmix_alpha) if now.rng.random() < self.switch else MixUp(self.mixup_alpha)
        return method.transform_batch(batch, now)
