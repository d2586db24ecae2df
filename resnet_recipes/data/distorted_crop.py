"""TensorFlow's sample_distorted_bounding_box, by which MLPerf's reference crops images."""

import numpy as np

TRIES = 100

#: Fraction of the object that a crop must cover; without bounding boxes the object is the whole
#: image.
COVERED = 0.1


def distorted_crops(
    draws: np.ndarray, sizes: np.ndarray, scale: tuple[float, float], ratio: tuple[float, float]
) -> np.ndarray:
    """Return int64 [N, 4] crops (top, left, height, width) of images of `sizes` [N, 2].

    Width / height is uniform in `ratio`, and the height is uniform over values that keep the area
    within `scale`. Takes the first of 100 tries that fits, otherwise the whole image. As in the
    original, a crop smaller than the image never touches its right or bottom border. `draws` is [N,
    4 * 100], from `uniforms`.
    """
    tall, wide = sizes[:, :1].astype(np.float64), sizes[:, 1:].astype(np.float64)
    shape, length, down, right = np.moveaxis(draws.reshape(-1, TRIES, 4), 2, 0)
    aspect = ratio[0] + (ratio[1] - ratio[0]) * shape
    least, most = scale[0] * tall * wide, scale[1] * tall * wide
    lowest, highest = np.rint(np.sqrt(least / aspect)), np.rint(np.sqrt(most / aspect))
    fitting = np.floor((wide + 0.5 - 1e-7) / aspect)
    fitting -= np.rint(fitting * aspect) > wide
    highest = np.minimum(np.where(np.rint(highest * aspect) > wide, fitting, highest), tall)
    lowest = np.minimum(lowest, highest)
    height = lowest + np.floor(length * (highest - lowest + 1))
    # rounding may overshoot the range by a pixel
    height += height * np.rint(height * aspect) < least
    height -= height * np.rint(height * aspect) > most
    width = np.rint(height * aspect)
    area = height * width
    fits = (area >= np.maximum(least, COVERED * tall * wide)) & (area <= most) & (area > 0)
    fits &= (width <= wide) & (height <= tall)
    top, left = np.floor(down * (tall - height)), np.floor(right * (wide - width))
    tried = np.stack([top, left, height, width], axis=-1)[
        np.arange(len(sizes)), fits.argmax(axis=1)
    ]
    whole = np.concatenate([0 * tall, 0 * wide, tall, wide], axis=1)
    return np.where(fits.any(axis=1, keepdims=True), tried, whole).astype(np.int64)
