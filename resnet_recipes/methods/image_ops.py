"""RandAugment's operations on one decoded image, by Pillow."""

from collections.abc import Callable

from PIL import Image, ImageEnhance, ImageOps

#: Each operation takes an RGB image and a value in its own unit, and returns a new image of the same size.
ImageOp = Callable[[Image.Image, float], Image.Image]


def _affine(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    """Sample bilinearly where `matrix` sends each output pixel; black outside. Shears turn about the top left corner."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


IMAGE_OPS: dict[str, ImageOp] = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "rotate": lambda image, degrees: image.rotate(degrees, Image.Resampling.BILINEAR),
    "solarize": lambda image, threshold: ImageOps.solarize(image, int(threshold)),
    "shear_x": lambda image, slope: _affine(image, (1, slope, 0, 0, 1, 0)),
    "shear_y": lambda image, slope: _affine(image, (1, 0, 0, slope, 1, 0)),
    "translate_x": lambda image, pixels: _affine(image, (1, 0, pixels, 0, 1, 0)),
    "translate_y": lambda image, pixels: _affine(image, (1, 0, 0, 0, 1, pixels)),
    "color": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
}
