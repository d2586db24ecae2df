"""Augment one decoded image with Pillow: an operation and its strength."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from resnet_recipes.augment import NativeOperation

#: Operations whose value is a factor: 1 leaves the image unchanged.
ENHANCERS = frozenset({"color", "contrast", "brightness", "sharpness"})

#: Each operation takes an RGB image and a value in its unit and returns a new image of the same
#: size. Operations that move pixels also take a filter and the color outside the image.
ImageOp = Callable[..., Image.Image]


def make_rotation(degrees: float, image_size: int) -> tuple[float, ...]:
    """Return the affine map that rotates a square counterclockwise, rounded as in Pillow."""
    angle = -math.radians(degrees % 360)
    half = image_size / 2
    cos = round(math.cos(angle), 15)
    sin = round(math.sin(angle), 15)
    return cos, sin, cos * -half + sin * -half + half, -sin, cos, -sin * -half + cos * -half + half


#: Affine maps from output to input pixels in Pillow format, given a value and an image size. Shears
#: keep the top left corner fixed.
_MATRICES: dict[str, Callable[[float, int], tuple[float, ...]]] = {
    "rotate": make_rotation,
    "shear_x": lambda slope, _: (1, slope, 0, 0, 1, 0),
    "shear_y": lambda slope, _: (1, 0, 0, slope, 1, 0),
    "translate_x": lambda pixels, _: (1, 0, pixels, 0, 1, 0),
    "translate_y": lambda pixels, _: (1, 0, 0, 0, 1, pixels),
    "flip_vertical": lambda _, image_size: (1, 0, 0, 0, -1, image_size),
    "transpose": lambda *_: (0, 1, 0, 1, 0, 0),
}


def make_native_operation(name: str, value: float, image_size: int) -> NativeOperation:
    """Return the native decoder's equivalent of an operation, with the same pixels."""
    if name in _MATRICES:
        return "affine", _MATRICES[name](value, image_size)
    return name, (value,)


#: Operations that move pixels.
MOVING = frozenset(_MATRICES)


def _make_affine(name: str) -> ImageOp:
    """Return an operation that resamples an image, by default bilinear, with black outside."""

    def transform(
        image: Image.Image,
        value: float,
        resample: Image.Resampling = Image.Resampling.BILINEAR,
        fill: tuple[int, int, int] | None = None,
    ) -> Image.Image:
        if name == "rotate":
            return image.rotate(value, resample, fillcolor=fill)
        matrix = _MATRICES[name](value, image.width)
        return image.transform(image.size, Image.Transform.AFFINE, matrix, resample, fillcolor=fill)

    return transform


IMAGE_OPS: dict[str, ImageOp] = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "rotate": _make_affine("rotate"),
    "solarize": lambda image, threshold: ImageOps.solarize(image, int(threshold)),
    **{name: _make_affine(name) for name in ("shear_x", "shear_y", "translate_x", "translate_y")},
    "color": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
}

#: The operations of RandAugment, in the order of their numbers there.
RANDAUGMENT_OPS = tuple(IMAGE_OPS)

IMAGE_OPS |= {
    "hue": lambda image, steps: _turn_hue(image, int(steps)),
    **{name: _make_affine(name) for name in ("flip_vertical", "transpose")},
}


def _turn_hue(image: Image.Image, steps: int) -> Image.Image:
    """Rotate the hue of an image by `steps` / 255 of a full turn, 0 to 255."""
    hue, saturation, value = image.convert("HSV").split()
    turned = hue.point([(level + steps) % 256 for level in range(256)])
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


class SampledOp(NamedTuple):
    """An operation on an image with its sampled value."""

    name: str  # a key of `IMAGE_OPS`
    value: float  # value in the operation's unit


@dataclass(frozen=True)
class RandomOps:
    """Random operations with values, given the image width; picklable if `sample` is."""

    sample: Callable[[int, np.random.Generator], Iterator[SampledOp]]

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        for name, value in self.sample(image.width, rng):
            image = IMAGE_OPS[name](image, value)
        return image

    def sample_operations(self, image_size: int, rng: np.random.Generator) -> list[NativeOperation]:
        """Return the operations for the native decoder."""
        return [
            make_native_operation(name, value, image_size)
            for name, value in self.sample(image_size, rng)
        ]
