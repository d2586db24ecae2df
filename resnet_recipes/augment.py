"""Types of functions that augment an image: methods define them, loaders call them."""

from collections.abc import Callable

import numpy as np
from PIL import Image

#: A function from one decoded RGB image and its random generator to an image of the same size. It
#: runs in loader workers, so it must pickle. If it has a method `sample_operations(image_size,
#: rng)` that returns a list of NativeOperation, the native decoder runs it, with the same pixels.
ImageAugment = Callable[[Image.Image, np.random.Generator], Image.Image]

#: One operation of the native decoder: a name from data.native.rows.OPERATIONS and its parameters.
NativeOperation = tuple[str, tuple[float, ...]]
