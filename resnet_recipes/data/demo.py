"""Generate the demo dataset: small synthetic images of twelve object classes, as JPEG files."""

import colorsys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import Note
from resnet_recipes.data.base import DataFacts

TRAIN_IMAGES = 260  # training images per class
VAL_IMAGES = 45  # validation images per class

SHAPES = ("cross", "disc", "ring", "triangle")
TEXTURES = ("halved", "plain", "striped")

#: Typical hue of each shape, as a fraction of a turn: a hint about the class.
HUES = {"cross": 0.0, "disc": 0.25, "ring": 0.5, "triangle": 0.75}

#: Class names in label order: texture and outline. Position, size, angle and background are
#: independent of the class.
DEMO_CLASSES = tuple(f"{texture}_{shape}" for texture in TEXTURES for shape in SHAPES)

#: Facts about the images before they exist.
DEMO_FACTS = DataFacts(
    "torchvision",
    Path("data/demo"),
    TRAIN_IMAGES * len(DEMO_CLASSES),
    VAL_IMAGES * len(DEMO_CLASSES),
    DEMO_CLASSES,
    (Note("the images do not exist yet: the run generates them"),),
)


def write(
    folder: Path, seed: int = 0, train_images: int = TRAIN_IMAGES, val_images: int = VAL_IMAGES
) -> Path:
    """Write train/CLASS/*.jpg and val/CLASS/*.jpg to `folder` unless it exists; return it.

    Takes about ten seconds. Each image depends only on its class, number and `seed`. The folder is
    created completely or not at all.
    """
    if folder.exists():
        return folder
    with atomic.create_folder(folder) as draft:
        for part, (split, count) in enumerate((("train", train_images), ("val", val_images))):
            for label, name in enumerate(DEMO_CLASSES):
                class_folder = draft / split / name
                class_folder.mkdir(parents=True)
                for number in range(count):
                    rng = np.random.default_rng((seed, part, label, number))
                    scene = draw_picture(name, rng)
                    scene.save(
                        class_folder / f"{number:04d}.jpg", quality=int(rng.integers(60, 95))
                    )
    return folder


def draw_picture(name: str, rng: np.random.Generator) -> Image.Image:
    """Draw one picture: an object at a random place over clutter, unevenly lit and noisy."""
    texture, shape = name.split("_")
    width, height = (int(size) for size in rng.integers(64, 113, 2))
    background, object_color, pattern_color = _choose_colors(HUES[shape], rng)
    scene = Image.new("RGB", (width, height), tuple(int(value) for value in background))
    draw = ImageDraw.Draw(scene)
    for _ in range(rng.integers(1, 5)):
        _draw_clutter(draw, width, height, rng)
    radius = min(width, height) * rng.uniform(0.38, 0.48)
    middle = (rng.uniform(radius, width - radius), rng.uniform(radius, height - radius))
    mask = Image.new("L", (2 * width, 2 * height))
    outline = _draw_outline(shape, middle, radius, rng)
    ImageDraw.Draw(mask).polygon(outline, fill=255)
    if shape == "ring":  # a ring has a hole of half the size
        ImageDraw.Draw(mask).polygon(
            [(x + middle[0], y + middle[1]) for x, y in np.array(outline) / 2], fill=0
        )
    strength = _draw_pattern(texture, (width, height), middle, rng)
    surface = Image.fromarray(
        (object_color + strength[..., None] * (pattern_color - object_color)).astype(np.uint8)
    )
    scene.paste(surface, mask=mask.resize((width, height), Image.Resampling.BOX))
    return _photograph(scene, rng)


def _choose_colors(hue: float, rng: np.random.Generator) -> np.ndarray:
    """Choose three distinct colors [3, 3]: background, object (near this hue), and its pattern."""
    while True:
        background, pattern = rng.uniform(20, 235, (2, 3))
        shade = (hue + rng.uniform(-0.1, 0.1)) % 1, rng.uniform(0.4, 1.0), rng.uniform(0.4, 0.95)
        object_color = 255 * np.array(colorsys.hsv_to_rgb(*shade))
        colors = np.array([background, object_color, pattern], dtype=np.float32)
        if np.abs(colors - np.roll(colors, 1, 0)).sum(1).min() > 240:
            return colors


def _draw_pattern(
    texture: str, size: tuple[int, int], middle: tuple[float, float], rng: np.random.Generator
) -> np.ndarray:
    """Return a pattern of random angle and period as opacity, float32 [height, width] in 0..1."""
    angle = rng.uniform(0, 2 * np.pi)
    period = rng.uniform(13, 20)
    phase = rng.uniform(0, 2 * np.pi)
    across, down = (
        np.arange(length, dtype=np.float32) - np.float32(center)
        for length, center in zip(size, middle, strict=True)
    )
    along = np.float32(np.cos(angle)) * across[None] + np.float32(np.sin(angle)) * down[:, None]
    if texture == "plain":
        return np.zeros_like(along)
    if texture == "halved":
        return np.clip(np.sign(along), 0, 1)
    return np.clip(2 * np.sin(np.float32(2 * np.pi / period) * along + np.float32(phase)), 0, 1)


def _draw_outline(
    shape: str, middle: tuple[float, float], radius: float, rng: np.random.Generator
) -> list[tuple[float, float]]:
    """Return the corners of a shape at twice the picture size, rotated and slightly squeezed."""
    if shape == "cross":
        arm = 0.32  # half the width of an arm, as a fraction of its length
        quarter = np.array([1 - 1j * arm, 1 + 1j * arm, arm + 1j * arm])
        corners = np.concatenate([quarter * turn for turn in (1, 1j, -1, -1j)])
    else:
        corners = np.exp(2j * np.pi * np.linspace(0, 1, 3 if shape == "triangle" else 40, False))
    turn = rng.uniform(0, 2 * np.pi)
    squeeze = rng.uniform(0.85, 1.0, 2)
    turned = corners * np.exp(1j * turn)
    return [
        tuple(2 * (middle + radius * squeeze * (corner.real, corner.imag))) for corner in turned
    ]


def _draw_clutter(
    draw: ImageDraw.ImageDraw, width: int, height: int, rng: np.random.Generator
) -> None:
    """Draw a small object that does not belong to a class: a line, a box or a blob."""
    x, y, w, h = rng.uniform(0, width), rng.uniform(0, height), *rng.uniform(3, 12, 2)
    color = tuple(int(value) for value in rng.integers(0, 256, 3))
    kind = rng.integers(3)
    if kind == 0:
        end = x + 3 * (w - 8), y + 3 * (h - 8)
        draw.line((x, y, *end), fill=color, width=int(rng.integers(1, 4)))
        return
    shape = draw.rectangle if kind == 1 else draw.ellipse
    shape((x, y, x + w, y + h), fill=color)


def _photograph(scene: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Blur the scene slightly, light it from one side and add camera noise."""
    pixels = np.asarray(scene.filter(ImageFilter.GaussianBlur(rng.uniform(0.0, 0.7))), np.float32)
    height, width = pixels.shape[:2]
    right, down = (np.linspace(-0.5, 0.5, size, dtype=np.float32) for size in (width, height))
    level, across, along = rng.uniform((0.8, -0.25, -0.25), (1.1, 0.25, 0.25)).astype(np.float32)
    light = level + across * right + along * down[:, None]
    noise = rng.standard_normal(pixels.shape, np.float32) * np.float32(rng.uniform(2, 8))
    return Image.fromarray(np.clip(pixels * light[..., None] + noise, 0, 255).astype(np.uint8))
