"""RandAugment as in timm: stronger with the magnitude, and each operation skipped half the time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from resnet_recipes.base.limits import Bounds, OneOf, Share
from resnet_recipes.methods.base import Method, SampleAugment

#: ImageNet's mean colour, which fills areas from outside the image.
_FILL = (124, 116, 104)

_FILTERS = {
    "bilinear": (Image.Resampling.BILINEAR,),
    "bicubic": (Image.Resampling.BICUBIC,),
    "random": (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC),
}

#: Takes an image, a level from 0 to 1, a sign and a resampling filter, and returns the changed
#: image.
Operation = Callable[[Image.Image, float, int, Image.Resampling], Image.Image]


@dataclass
class IncreasingRandAugment(Method):
    """Apply random operations as timm does (Cubuk et al., 2020, arXiv:1909.13719).

    timm's policy `rand-m7-mstd0.5-inc1`: 15 operations that get stronger with the magnitude, drawn
    uniformly with replacement; each is applied with probability `p` and a magnitude from
    N(magnitude, deviation), clipped to 0..10. Areas from outside the image have ImageNet's mean
    colour. Runs on decoded images in the loader's workers.
    """

    name: ClassVar[str] = "increasing_randaugment"
    cost: ClassVar[str] = "about one Pillow operation for each image, in the workers."
    gain: ClassVar[str] = (
        "part of timm's A1 to A3, not measured separately (Wightman et al., 2021, "
        "arXiv:2110.00476)."
    )
    avoid_when: ClassVar[str] = "The run is short, or the loader is short of CPU."
    conflicts: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("randaugment", "trivial_augment"), "either draws the operations"
    )
    depth: Annotated[int, Bounds(least=1, most=20)] = 2  # operations drawn for each image
    p: Share = 0.5  # probability that a drawn operation is applied
    magnitude: Annotated[float, Bounds(least=0, most=10)] = 7.0  # mean strength, 0 to 10
    # standard deviation of the strength
    deviation: Annotated[float, Bounds(least=0, most=10)] = 0.5
    # when moving pixels: bilinear | bicubic | random (either, for each image)
    interpolation: Annotated[str, OneOf(*_FILTERS)] = "random"

    def augment_sample(self) -> SampleAugment:
        return _OneImage(self)


@dataclass(frozen=True)
class _OneImage:
    """The operations applied to one image; pickles."""

    settings: IncreasingRandAugment

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        settings, filters = self.settings, _FILTERS[self.settings.interpolation]
        for number in rng.integers(len(OPERATIONS), size=settings.depth):
            acts = rng.random() < settings.p
            level = rng.normal(settings.magnitude, settings.deviation)
            sign, resample = 1 - 2 * int(rng.integers(2)), filters[rng.integers(len(filters))]
            if acts:
                image = tuple(OPERATIONS.values())[number](
                    image, min(max(level, 0.0), 10.0) / 10, sign, resample
                )
        return image


def _enhance(kind: type) -> Operation:
    """Return an operation that weakens or strengthens a property by up to nine tenths."""
    return lambda image, level, sign, resample: kind(image).enhance(
        max(0.1, 1 + sign * 0.9 * level)
    )


def _affine(matrix: Callable[[float, Image.Image], tuple[float, ...]]) -> Operation:
    """Return an operation that resamples an image by an affine map in Pillow's format."""
    return lambda image, level, sign, resample: image.transform(
        image.size, Image.Transform.AFFINE, matrix(sign * level, image), resample, fillcolor=_FILL
    )


def _brighten_dark(
    image: Image.Image, level: float, sign: int, resample: Image.Resampling
) -> Image.Image:
    more = min(128, int(110 * level))
    return image.point(
        [min(255, value + more) if value < 128 else value for value in range(256)] * 3
    )


def _posterize(
    image: Image.Image, level: float, sign: int, resample: Image.Resampling
) -> Image.Image:
    # Pillow rejects 0 bits, which would be black
    return ImageOps.posterize(image, max(1, 4 - int(4 * level)))


OPERATIONS: dict[str, Operation] = {
    "autocontrast": lambda image, *_: ImageOps.autocontrast(image),
    "equalize": lambda image, *_: ImageOps.equalize(image),
    "invert": lambda image, *_: ImageOps.invert(image),
    "rotate": lambda image, level, sign, resample: image.rotate(
        30 * sign * level, resample, fillcolor=_FILL
    ),
    "posterize": _posterize,
    "solarize": lambda image, level, *_: ImageOps.solarize(image, 256 - int(256 * level)),
    "solarize_add": _brighten_dark,
    "color": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "shear_x": _affine(lambda level, image: (1, 0.3 * level, 0, 0, 1, 0)),
    "shear_y": _affine(lambda level, image: (1, 0, 0, 0.3 * level, 1, 0)),
    "translate_x": _affine(lambda level, image: (1, 0, 0.45 * level * image.width, 0, 1, 0)),
    "translate_y": _affine(lambda level, image: (1, 0, 0, 0, 1, 0.45 * level * image.height)),
}
