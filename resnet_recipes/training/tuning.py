"""cuDNN's search for its fastest algorithms, where sizes last long enough to pay for it."""

from collections import Counter
from collections.abc import Collection
from typing import Self

import torch

from resnet_recipes.planning.plan import Plan

#: Pixels that a rank must train on at an image size: those of 300,000 images of 224 px, which
#: take ResNet-50 45 s on an H200. There the first step takes 2 to 8 s with a search; its gain, some
#: percent, is assumed.
WORTH = 300_000 * 224**2


class Tuning:
    """Says for which image sizes cuDNN searches.

    Torch keeps the algorithm of the first convolution of a shape, whether it was searched for or
    not. So this is decided before, from the plan alone, and the same on every rank and after a
    resume.
    """

    def __init__(self, searched: Collection[int] = ()):
        """Search at these sides, in pixels."""
        self.searched = frozenset(searched)

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """Search at the sizes that are worth it."""
        pixels: Counter[int] = Counter()
        for epoch, side in enumerate(plan.sizes):
            steps = min(plan.steps_per_epoch, plan.total_steps - epoch * plan.steps_per_epoch)
            pixels[side] += steps * plan.rank_size * side**2
        return cls([side for side, count in pixels.items() if count >= WORTH])

    def enter(self, side: int) -> None:
        """Set cuDNN's search for images of this side; costs next to nothing."""
        torch.backends.cudnn.benchmark = side in self.searched
