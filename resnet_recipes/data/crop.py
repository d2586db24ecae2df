"""Random crops of a batch as a pure function of (seed, epoch, index, copy)."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from resnet_recipes.data.base import Batching, DataConfig
from resnet_recipes.data.loading.storage import Rows

TENSORFLOW_ATTEMPTS = 100  # attempts to find a crop with TensorFlow's rule

#: Fraction of the object that a crop must cover; without bounding boxes, the object is the full
#: image.
MIN_COVERED = 0.1


def compute_tensorflow_crops(
    uniforms: np.ndarray, sizes: np.ndarray, scale: tuple[float, float], ratio: tuple[float, float]
) -> np.ndarray:
    """Return TensorFlow's random crops, int64 [N, 4] (top, left, height, width).

    `sizes` [N, 2] are heights and widths of the images. The rule: width / height is uniform in
    `ratio`, and the height is uniform over values that keep the area within `scale`. Takes the
    first of 100 attempts that fits, otherwise the full image. As in TensorFlow, a crop never ends
    at the right or bottom border, unless it has the full width or height. `uniforms` is [N, 4 *
    100], from `sample_uniforms`.
    """
    image_height, image_width = np.split(sizes.astype(np.float64), 2, axis=1)
    ratio_uniforms, height_uniforms, top_uniforms, left_uniforms = np.moveaxis(
        uniforms.reshape(-1, TENSORFLOW_ATTEMPTS, 4), 2, 0
    )
    aspect = ratio[0] + (ratio[1] - ratio[0]) * ratio_uniforms
    smallest_area = scale[0] * image_height * image_width
    largest_area = scale[1] * image_height * image_width
    lowest = np.rint(np.sqrt(smallest_area / aspect))
    highest = np.rint(np.sqrt(largest_area / aspect))
    fitting = np.floor((image_width + 0.5 - 1e-7) / aspect)
    fitting -= np.rint(fitting * aspect) > image_width
    highest = np.minimum(
        np.where(np.rint(highest * aspect) > image_width, fitting, highest), image_height
    )
    lowest = np.minimum(lowest, highest)
    height = lowest + np.floor(height_uniforms * (highest - lowest + 1))
    # rounding may overshoot the range by a pixel
    height += height * np.rint(height * aspect) < smallest_area
    height -= height * np.rint(height * aspect) > largest_area
    width = np.rint(height * aspect)
    area = height * width
    fits = (
        (area >= np.maximum(smallest_area, MIN_COVERED * image_height * image_width))
        & (area <= largest_area)
        & (area > 0)
    )
    fits &= (width <= image_width) & (height <= image_height)
    top = np.floor(top_uniforms * (image_height - height))
    left = np.floor(left_uniforms * (image_width - width))
    tried = np.stack([top, left, height, width], axis=-1)
    return _choose_first_fitting(
        tried,
        fits,
        np.concatenate([0 * image_height, 0 * image_width, image_height, image_width], axis=1),
    )


def _choose_first_fitting(tried: np.ndarray, fits: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Return each image's first attempt that fits, of [N, attempts, 4], as int64 [N, 4]."""
    chosen = tried[np.arange(len(tried)), fits.argmax(axis=1)]
    return np.where(fits.any(axis=1, keepdims=True), chosen, otherwise).astype(np.int64)


TORCHVISION_ATTEMPTS = 10  # attempts to find a crop with torchvision's rule
#: Part of the seed of augmentations, so that no other generator repeats their numbers.
_AUGMENT_SEED = 0x61756720
_INDEX_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # the increment of SplitMix64
_COPY_FACTOR = np.uint64(0xD1B54A32D192ED03)  # another odd number, to separate copies


@dataclass(frozen=True)
class TrainCrop:
    """Training crops, identical in every backend."""

    seed: int
    config: DataConfig

    @classmethod
    def of(cls, config: DataConfig, batching: Batching) -> Self:
        """Return the training crops of a recipe."""
        return cls(batching.seed if config.seed == "auto" else int(config.seed), config)

    @property
    def is_distorted(self) -> bool:
        """Whether crops follow TensorFlow's rule for distorted bounding boxes."""
        return self.config.crop_rule == "tensorflow"

    def sample_boxes(self, rows: Rows, sizes: np.ndarray) -> "RandomCrops":
        """Return crops of images of `sizes` [N, 2] (height, width).

        The numbers are int64 [N, 4]: top, left, height, width.
        """
        uniforms, flipped = self._sample_uniforms(rows)
        crops = compute_tensorflow_crops if self.is_distorted else compute_torchvision_crops
        scale, ratio = self.config.crop_scale, self.config.crop_ratio
        return RandomCrops(crops(uniforms, sizes, scale, ratio), flipped)

    def sample_attempts(self, rows: Rows) -> "RandomCrops":
        """Return random numbers; the native decoder computes the boxes of `sample_boxes` from them.

        They are float64 [N, 42]: ten attempts and the ratio. With TensorFlow's rule they are [N,
        404]: random numbers, scale and ratio.
        """
        numbers, flipped = self._sample_uniforms(rows)
        scale, ratio = self.config.crop_scale, self.config.crop_ratio
        limits: tuple[float, ...] = *scale, *ratio
        if not self.is_distorted:
            limits = ratio
            numbers = make_attempts(numbers, scale, ratio).reshape(len(numbers), -1)
        limits_by_row = np.tile(limits, (len(numbers), 1))
        return RandomCrops(np.concatenate([numbers, limits_by_row], axis=1), flipped)

    def _sample_uniforms(self, rows: Rows) -> "RandomCrops":
        tries = TENSORFLOW_ATTEMPTS if self.is_distorted else TORCHVISION_ATTEMPTS
        uniforms = sample_uniforms(
            self.seed, rows.crop_epoch, rows.indices, 4 * tries + 1, rows.copies
        )
        return RandomCrops(uniforms[:, :-1], self.config.flip & (uniforms[:, -1] < 0.5))

    def choose_bicubic(self, rows: Rows) -> np.ndarray:
        """Return which images are resized with bicubic interpolation, bool [N].

        The other images use bilinear interpolation.
        """
        interpolation = self.config.interpolation
        if interpolation != "random":
            return np.full(len(rows.indices), interpolation == "bicubic")
        uniforms = sample_uniforms(
            self.seed, rows.crop_epoch, rows.indices, 4 * TORCHVISION_ATTEMPTS + 2, rows.copies
        )
        return uniforms[:, -1] < 0.5

    def generator(self, rows: Rows, row: int) -> np.random.Generator:
        """Return the random generator for augmenting the image of one row."""
        copy = int(rows.copies[row])
        key = self.seed, rows.crop_epoch, int(rows.indices[row]), _AUGMENT_SEED
        return np.random.default_rng((*key, copy) if copy else key)


class RandomCrops(NamedTuple):
    """The crops of a batch, as boxes or as the numbers that boxes are computed from."""

    numbers: np.ndarray  # [N, ...]
    flipped: np.ndarray  # bool [N], whether the crop is flipped horizontally


def sample_uniforms(
    seed: int, epoch: int, indices: np.ndarray, count: int, copies: np.ndarray | int = 0
) -> np.ndarray:
    """Return float64 [N, count] in [0, 1), a function of (seed, epoch, index, copy) alone.

    Uses SplitMix64 (Steele, Lea and Flood, 2014) as a stateless counter hash, so every worker, rank
    and resumed run gets the same numbers.
    """
    with np.errstate(over="ignore"):
        stream = _mix(_mix(np.array([seed], np.uint64)) + np.uint64(epoch))
        keys = _mix(stream + indices.astype(np.uint64) * _INDEX_FACTOR)
        keys += np.asarray(copies).astype(np.uint64) * _COPY_FACTOR
        bits = _mix(keys[:, None] + _INDEX_FACTOR * np.arange(1, count + 1, dtype=np.uint64))
    return (bits >> np.uint64(11)) * 2.0**-53


def compute_torchvision_crops(
    uniforms: np.ndarray, sizes: np.ndarray, scale: tuple[float, float], ratio: tuple[float, float]
) -> np.ndarray:
    """Return torchvision's random crops, int64 [N, 4] (top, left, height, width).

    `sizes` [N, 2] are heights and widths of the images. As in RandomResizedCrop of torchvision and
    FFCV, a crop has a relative area from `scale` and a log-uniform aspect ratio from `ratio`. If
    ten attempts fail, it is the largest centered crop within `ratio`. `uniforms` is [N, 4 * 10],
    from `sample_uniforms`.
    """
    height, width = np.split(sizes.astype(np.float64), 2, axis=1)
    area_fraction, aspect, down, right = np.moveaxis(make_attempts(uniforms, scale, ratio), 2, 0)
    area = height * width * area_fraction
    tried_width = np.rint(np.sqrt(area * aspect))
    tried_height = np.rint(np.sqrt(area / aspect))
    fits = (tried_width > 0) & (tried_width <= width)
    fits &= (tried_height > 0) & (tried_height <= height)
    top = np.floor(down * (height - tried_height + 1))
    left = np.floor(right * (width - tried_width + 1))
    tried = np.stack([top, left, tried_height, tried_width], axis=-1)
    return _choose_first_fitting(tried, fits, _compute_widest_crops(height, width, ratio))


def make_attempts(
    uniforms: np.ndarray, scale: tuple[float, float], ratio: tuple[float, float]
) -> np.ndarray:
    """Return float64 [N, 10, 4], the crops to try.

    Each is a relative area, width / height, and position (down, right) in 0..1.
    """
    tried = uniforms.reshape(-1, TORCHVISION_ATTEMPTS, 4).copy()
    tried[..., 0] = scale[0] + (scale[1] - scale[0]) * tried[..., 0]
    low, high = np.log(ratio)
    tried[..., 1] = np.exp(low + (high - low) * tried[..., 1])
    return tried


def _compute_widest_crops(
    height: np.ndarray, width: np.ndarray, ratio: tuple[float, float]
) -> np.ndarray:
    """Return float64 [N, 4]: the full image, trimmed if it is too wide or too tall.

    Height and width are [N, 1]. Each is at least one pixel for any image shape, because an empty
    crop would abort native code.
    """
    tall = np.minimum(height, np.maximum(1, np.rint(width / min(ratio))))
    wide = np.minimum(width, np.maximum(1, np.rint(height * max(ratio))))
    return np.concatenate([(height - tall) // 2, (width - wide) // 2, tall, wide], axis=1)


def _mix(bits: np.ndarray) -> np.ndarray:
    """Scramble uint64 so that neighboring inputs give unrelated outputs."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
