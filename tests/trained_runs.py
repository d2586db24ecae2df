"""Create a finished run quickly, with weights and class folders of tiny images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from resnet_recipes.network import about
from resnet_recipes.network.weights import write_weights
from resnet_recipes.recipe.frozen_recipe import freeze
from resnet_recipes.run_folder import WEIGHTS
from resnet_recipes.training.run import Run

CLASSES = tuple(f"pattern{number}" for number in range(10))


def create_trained_run(make_run: Callable[..., Run], folder: Path, **changes: object) -> Path:
    """Return the folder of a run with random weights; its images are in `images` next to it."""
    images = create_random_images(folder.parent / "images")
    run = make_run(**changes)
    recipe = run.plan.recipe
    folder.mkdir()
    write_weights(run.model, folder / WEIGHTS, about.describe(recipe, CLASSES, len(CLASSES), 2.0))
    recipe.data.root, recipe.data.backend, recipe.data.workers = str(images), "torchvision", 0
    (folder / "config.yaml").write_text(freeze(recipe))
    return folder


def create_random_images(root: Path, train: int = 1) -> Path:
    """Write training images and three validation images per class below `root`; return `root`."""
    rng = np.random.default_rng(0)
    for split, count in (("train", train), ("val", 3)):
        for name in CLASSES:
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{number}.jpg", quality=95)
    return root
