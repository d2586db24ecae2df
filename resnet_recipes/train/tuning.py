"""cuDNN's search for its fastest algorithms, for image sizes that last long enough to pay for it."""

import torch

from resnet_recipes.plan import Plan

#: Seconds of training that an image size must have ahead. A search takes 3 to 5 s for ResNet-50 and gains some percent.
WORTH = 60.0


class Tuning:
    """Decides for each image size whether cuDNN searches, by how many seconds the size will last.

    A step's seconds are measured from the second logged interval on, since the first includes compilation and warm-up;
    at other sizes they are scaled by pixels. Once on for a size, the search stays on, or its result would not be used.
    """

    def __init__(self, plan: Plan):
        self._plan = plan
        self._seconds_per_pixel: float | None = None        # of one step; a pixel of each image
        self._observed = 0
        self._searched: set[int] = set()

    def enter(self, step: int) -> None:
        """Set cuDNN's search for the image size of a step; costs next to nothing."""
        pixels = self._plan.pixels_at(step)
        if pixels not in self._searched and self._seconds_left(step, pixels) >= WORTH:
            self._searched.add(pixels)
        torch.backends.cudnn.benchmark = pixels in self._searched

    def observe(self, step: int, seconds: float) -> None:
        """Take in how long a step took, on average over a logged interval that ends with `step`."""
        self._observed += 1
        if self._observed > 1:
            self._seconds_per_pixel = seconds / self._plan.pixels_at(step) ** 2

    def _seconds_left(self, step: int, pixels: int) -> float:
        """Return the seconds that this image size lasts from `step` on; 0 before the first measurement."""
        if self._seconds_per_pixel is None:
            return 0.0
        plan, end = self._plan, step
        while end < plan.total_steps and plan.pixels_at(end) == pixels:
            end = min(plan.total_steps, (end // plan.steps_per_epoch + 1) * plan.steps_per_epoch)
        return (end - step) * self._seconds_per_pixel * pixels**2
