"""Draw the demo set: small pictures of twelve kinds of things, as a real folder of JPEGs."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

TRAIN_IMAGES = 260            # per class
VAL_IMAGES = 45               # per class

SHAPES = ("disc", "square", "star", "triangle")
TEXTURES = ("dotted", "plain", "striped")

#: Class names in label order: what a thing is made of, and its outline. Colour, place, size and angle say nothing about the class.
CLASSES = tuple(f"{texture}_{shape}" for texture in TEXTURES for shape in SHAPES)


def write(folder: Path, seed: int = 0, train_images: int = TRAIN_IMAGES, val_images: int = VAL_IMAGES) -> Path:
    """Write the set to `folder`, unless it is there, and return it: train/CLASS/*.jpg and val/CLASS/*.jpg. Takes some ten seconds.

    Each image is a function of its class, its number and `seed`. The folder appears whole or not at all.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for part, (split, count) in enumerate((("train", train_images), ("val", val_images))):
            for label, name in enumerate(CLASSES):
                (temporary / split / name).mkdir(parents=True)
                for number in range(count):
                    rng = np.random.default_rng((seed, part, label, number))
                    picture(name, rng).save(temporary / split / name / f"{number:04d}.jpg", quality=int(rng.integers(60, 95)))
        temporary.chmod(0o755)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def picture(name: str, rng: np.random.Generator) -> Image.Image:
    """Draw one picture: the thing of its class somewhere over a background with clutter, in uneven light and with noise."""
    texture, shape = name.split("_")
    width, height = (int(side) for side in rng.integers(64, 113, 2))
    far, near, ink = _colours(rng)
    scene = Image.fromarray(_textured(TEXTURES[rng.integers(3)], width, height, far, _mixed(far, near, 0.25), rng))
    draw = ImageDraw.Draw(scene)
    for _ in range(rng.integers(2, 7)):
        _clutter(draw, width, height, rng)
    radius = min(width, height) * rng.uniform(0.26, 0.46)
    middle = (rng.uniform(radius, width - radius), rng.uniform(radius, height - radius))
    mask = Image.new("L", (2 * width, 2 * height))
    ImageDraw.Draw(mask).polygon(_outline(shape, middle, radius, rng), fill=255)
    scene.paste(Image.fromarray(_textured(texture, width, height, near, ink, rng)), mask=mask.resize((width, height), Image.BOX))
    return _photographed(scene, rng)


def _colours(rng: np.random.Generator) -> np.ndarray:
    """Draw three colours [3, 3] that can be told apart: background, thing, and the pattern on the thing."""
    while True:
        colours = rng.uniform(20, 235, (3, 3)).astype(np.float32)
        if min(np.abs(colours[a] - colours[b]).sum() for a, b in ((0, 1), (1, 2))) > 140:
            return colours


def _mixed(one: np.ndarray, other: np.ndarray, share: float) -> np.ndarray:
    return one + share * (other - one)


def _textured(texture: str, width: int, height: int, ground: np.ndarray, ink: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return uint8 [height, width, 3] of `ground` with a pattern in `ink`, at any angle and of any fineness."""
    angle, period, phase = rng.uniform(0, np.pi), rng.uniform(7, 13), rng.uniform(0, 2 * np.pi, 2)
    across = np.arange(width, dtype=np.float32)[None] * np.float32(2 * np.pi / period)
    down = np.arange(height, dtype=np.float32)[:, None] * np.float32(2 * np.pi / period)
    if texture == "plain":
        return np.broadcast_to(ground.astype(np.uint8), (height, width, 3)).copy()
    cos, sin = np.float32((np.cos(angle), np.sin(angle)))
    strength = 2 * np.sin(cos * across + sin * down + np.float32(phase[0]))
    if texture == "dotted":
        strength = 2 * np.minimum(strength, 2 * np.sin(cos * down - sin * across + np.float32(phase[1])))
    return _mixed(ground, ink, np.clip(strength, 0, 1)[..., None]).astype(np.uint8)


def _outline(shape: str, middle: tuple[float, float], radius: float, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Return the corners of a shape at twice the size of the picture, turned by any angle and a little squeezed."""
    count, inner = {"disc": (40, 1.0), "square": (4, 1.0), "star": (10, 0.45), "triangle": (3, 1.0)}[shape]
    angles = rng.uniform(0, 2 * np.pi) + np.arange(count) * 2 * np.pi / count
    radii = radius * np.where(np.arange(count) % 2, inner, 1.0)
    squeeze = rng.uniform(0.85, 1.0, 2)
    return [(2 * (middle[0] + squeeze[0] * r * np.cos(a)), 2 * (middle[1] + squeeze[1] * r * np.sin(a)))
            for a, r in zip(angles, radii, strict=True)]


def _clutter(draw: ImageDraw.ImageDraw, width: int, height: int, rng: np.random.Generator) -> None:
    """Draw a small thing that belongs to no class: a line, a box or a blot."""
    x, y, w, h = rng.uniform(0, width), rng.uniform(0, height), *rng.uniform(3, 16, 2)
    colour = tuple(int(value) for value in rng.integers(0, 256, 3))
    kind = rng.integers(3)
    if kind == 0:
        draw.line((x, y, x + 3 * (w - 8), y + 3 * (h - 8)), fill=colour, width=int(rng.integers(1, 4)))
    elif kind == 1:
        draw.rectangle((x, y, x + w, y + h), fill=colour)
    else:
        draw.ellipse((x, y, x + w, y + h), fill=colour)


def _photographed(scene: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Blur the scene a little, light it from one side and add the noise of a cheap camera."""
    pixels = np.asarray(scene.filter(ImageFilter.GaussianBlur(rng.uniform(0.0, 0.9))), np.float32)
    height, width = pixels.shape[:2]
    right, down = np.linspace(-0.5, 0.5, width, dtype=np.float32)[None], np.linspace(-0.5, 0.5, height, dtype=np.float32)[:, None]
    level, across, along = rng.uniform((0.75, -0.35, -0.35), (1.1, 0.35, 0.35)).astype(np.float32)
    light = level + across * right + along * down
    noise = rng.standard_normal(pixels.shape, np.float32) * np.float32(rng.uniform(2, 14))
    return Image.fromarray(np.clip(pixels * light[..., None] + noise, 0, 255).astype(np.uint8))
