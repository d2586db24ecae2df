"""Random image operations of random strength, for every image."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from PIL import Image
from torch import Tensor

from resnet_recipes.base.duration import Horizon
from resnet_recipes.base.errors import Problem
from resnet_recipes.methods.base import Method, Now, SampleAugment
from resnet_recipes.methods.image_ops import ENHANCERS, IMAGE_OPS, step
from resnet_recipes.methods.pixel_ops import KINDS, augment

_SAFE = tuple(name for name in IMAGE_OPS if name not in ENHANCERS)
SETS = {"all": tuple(IMAGE_OPS), "safe": _SAFE, "original": tuple(IMAGE_OPS)}


@dataclass
class RandAugment(Method):
    """Apply random operations to each image (Cubuk et al., 2020, arXiv:1909.13719).

    Composer's variant: 13 operations, without an identity, drawn uniformly with replacement, each
    with its own strength from U(0.1, severity). At severity 10: rotate by up to 30 degrees, shear
    by 0.3, translate by a third of the side, posterize to 4 to 1 bits, solarize at any threshold,
    and change colour, contrast, brightness and sharpness by factors of 0.1 to 10 (`original`: 0.1
    to 1.9; `safe`: without these four). `placement: sample` runs Pillow on decoded images in the
    loader's workers. `batch` runs on the uint8 batch on the device, still with separate draws for
    each image; operations and ranges are the same and pixels agree to one grey level. It needs no
    workers and works with every loader. `auto` means `sample` if the loader has workers for it.
    """

    name: ClassVar[str] = "randaugment"
    cost: ClassVar[str] = (
        "18 % of throughput at depth 1 and 28 % at depth 2 in the workers of 8 A100 (MosaicML, "
        "Mosaic ResNet deep dive, Table 2); on a CPU, `batch` takes half of the time of `sample` "
        "at 176 px (commit 00ea0fc)."
    )
    gain: ClassVar[str] = (
        "+0.4 points for ResNet-50 at 90 epochs, +1.15 at 120 (depth 2, severity 9; Composer, "
        "method card); without it no run of any length exceeded 79.87 % (deep dive)."
    )
    avoid_when: ClassVar[str] = (
        "The run is short: at 90 epochs there is no gain on top of blurpool, mixup and "
        "label_smoothing (Composer, method card)."
    )
    depth: int = 1  # operations applied to each image in turn
    severity: float = 10.0  # largest strength, 0.1 to 10
    augmentation_set: str = "all"  # all | safe | original
    placement: str = "auto"  # sample: in the loader's workers | batch: on the device | auto: either

    def problems(self) -> Iterator[Problem]:
        if not 1 <= self.depth <= 20:
            fix = "remove randaugment with '~methods.randaugment'" if self.depth < 1 else ""
            yield Problem("depth", self.depth, "must be between 1 and 20", fix)
        if not 0.1 <= self.severity <= 10:
            yield Problem("severity", self.severity, "must be between 0.1 and 10")
        if self.augmentation_set not in SETS:
            yield Problem(
                "augmentation_set", self.augmentation_set, f"must be one of {', '.join(SETS)}"
            )
        if self.placement not in ("auto", "sample", "batch"):
            yield Problem("placement", self.placement, "must be auto, sample or batch")

    def resolved(self, sample_ops: bool) -> Method:
        if self.placement == "auto":
            return replace(self, placement="sample" if sample_ops else "batch")
        return self

    def provides(self, hook: str) -> bool:
        if hook in ("augment_sample", "augment_pixels"):
            if hook == "augment_pixels":
                return self.placement == "batch"
            return self.placement != "batch"
        return super().provides(hook)

    def note(self) -> str:
        return "on the device" if self.placement == "batch" else "in the workers"

    def advice(self, horizon: Horizon, full: int, others: Collection[str]) -> Iterator[str]:
        if "stochastic_depth" in others and horizon.epochs < 240:
            yield (
                "Regularisation as strong as Hot's pays off only from 240 epochs (on ImageNet, 180 "
                "epochs reached 79.9 %); recipe=medium is meant for 60 to 240 epochs."
            )

    def loader_hints(self) -> Iterator[str]:
        if self.provides("augment_sample"):
            setting = "methods.randaugment.placement=batch"
            yield f"{setting}       augment on the device, not in the loader"

    def augment_sample(self) -> SampleAugment:
        return _OneImage(self)

    def augment_pixels(self, pixels: Tensor, now: Now) -> Tensor:
        images = pixels.permute(0, 2, 3, 1)  # a view: memory is NHWC
        names = SETS[self.augmentation_set]
        for _ in range(self.depth):
            chosen = now.rng.integers(len(names), size=len(images))
            values = np.empty(len(images))
            for number, name in enumerate(names):
                drew = chosen == number
                values[drew] = self.values(name, images.shape[2], now.rng, int(drew.sum()))
            kinds = np.array([KINDS[name] for name in names])[chosen]
            images = augment(images, kinds, values)
        return images.permute(0, 3, 1, 2)

    def values(self, name: str, side: int, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw `count` values of operation `name`, in its unit, for images `side` pixels wide."""
        level = 0.1 + (self.severity - 0.1) * rng.random(count)
        sign = rng.choice((-1, 1), count)
        if name in ENHANCERS:
            return self._factors(name, level, rng)
        return {
            "autocontrast": lambda: level,
            "equalize": lambda: level,
            "posterize": lambda: 4 - np.trunc(0.4 * level),  # bits kept
            "rotate": lambda: sign * np.trunc(3 * level),  # degrees
            "solarize": lambda: 256 - np.trunc(25.6 * level),  # lowest value inverted
            "shear_x": lambda: sign * 0.03 * level,  # pixels for each pixel
            "shear_y": lambda: sign * 0.03 * level,
            "translate_x": lambda: sign * np.trunc(level * side / 30),  # pixels
            "translate_y": lambda: sign * np.trunc(level * side / 30),
        }[name]()

    def _factors(self, name: str, level: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return factors: 1 leaves the image unchanged, 0 removes the property completely."""
        if self.augmentation_set == "original":
            return 0.18 * level + 0.1
        share, more = rng.random(len(level)), rng.random(len(level)) < 0.5
        factor = 1 + share * np.where(more, self.severity - 1, -0.09 * self.severity)
        return np.where(factor > 1, 0.75 * factor, factor) if name == "brightness" else factor


class _OneImage:
    """RandAugment for one image; pickles."""

    def __init__(self, settings: RandAugment):
        self.settings = settings

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        for name, value in self._drawn(image.width, rng):
            image = IMAGE_OPS[name](image, value)
        return image

    def steps(self, side: int, rng: np.random.Generator) -> list[tuple[str, tuple[float, ...]]]:
        """Return the operations for the native decoder."""
        return [step(name, value, side) for name, value in self._drawn(side, rng)]

    def _drawn(self, side: int, rng: np.random.Generator) -> Iterator[tuple[str, float]]:
        names = SETS[self.settings.augmentation_set]
        for number in rng.integers(len(names), size=self.settings.depth):
            yield names[number], float(self.settings.values(names[number], side, rng, 1)[0])
