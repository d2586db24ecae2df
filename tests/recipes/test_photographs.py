"""Photographs transformed by recipes, against the transforms of their sources.

RESNET_RECIPES_TEST_DATA may name a folder of real photographs. Pixels may differ by two gray
levels, and by 0.1 on average, because decoders and resizers round at different points. Photographs
decoded at a reduced size are not compared.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional

from resnet_recipes import data
from resnet_recipes.data.base import Batching, DataConfig
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.order import shuffle
from resnet_recipes.recipe.compose import compose
from tests.data.loaders import make_rows

COUNT = 8
ALONE = Batching(0, 1, COUNT, COUNT, seed=3)
RECIPES = ["mild", "ffcv_rn50", "pytorch_v2", "timm_a1"]  # bilinear, bicubic, and both


@pytest.fixture(scope="module")
def photograph_folder(tmp_path_factory: pytest.TempPathFactory, photographs: list[Path]) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    for split in ("train", "val"):
        for number, path in enumerate(photographs[:COUNT]):
            (folder / split / f"{2 * number // COUNT}").mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / split / f"{2 * number // COUNT}")
    return folder


@pytest.fixture(params=RECIPES)
def settings(request: pytest.FixtureRequest, photograph_folder: Path) -> DataConfig:
    """The data section of a recipe, decoding images at full size."""
    arguments = [
        f"data={photograph_folder}",
        "data.reduced_decode=false",
        "data.repeats=1",
        "workers=1",
    ]
    recipe = compose(request.param, arguments).recipe
    return recipe.data


def open_images(folder: Path, split: str) -> list[Image.Image]:
    return [Image.open(path).convert("RGB") for path in sorted((folder / split).glob("*/*"))]


def read_first_batch(open_split: Callable, settings: DataConfig, *rest: object) -> np.ndarray:
    """Return one batch, int64 [N, S, S, 3]."""
    loader = open_split(settings, data.survey_images(settings), ALONE, *rest)
    try:
        return next(iter(loader.batches())).pixels.permute(0, 2, 3, 1).numpy().astype(int)
    finally:
        loader.close()


def assert_similar(
    ours: np.ndarray, theirs: Iterator[object], most: int = 2, mean: float = 0.1
) -> None:
    """Assert that pixels differ by at most `most`, and on average by `mean`."""
    differences = np.abs(ours - np.stack([np.asarray(image) for image in theirs]))
    assert differences.max() <= most
    assert differences.mean() <= mean


def test_evaluation_images_equal_torchvision_transforms(settings, photograph_folder):
    filtering = InterpolationMode(settings.eval_interpolation)
    peer = v2.Compose(
        [v2.Resize(settings.eval_resize, filtering), v2.CenterCrop(settings.eval_size)]
    )
    assert_similar(
        read_first_batch(data.open_eval, settings), map(peer, open_images(photograph_folder, "val"))
    )


@pytest.mark.parametrize(
    ("fit", "mode"), {"crop": "center", "pad": "border", "squash": "squash"}.items()
)
def test_a2_evaluation_images_match_timm_transform(photograph_folder, fit, mode):
    create = pytest.importorskip("timm.data", reason="needs timm").create_transform
    peer = create(224, interpolation="bicubic", crop_pct=0.95, crop_mode=mode, normalize=False)
    theirs = (
        peer(image).permute(1, 2, 0).numpy() for image in open_images(photograph_folder, "val")
    )
    arguments = [f"data={photograph_folder}", f"data.fit={fit}", "workers=1"]
    ours = read_first_batch(data.open_eval, compose("timm_a2", arguments).recipe.data)
    # for tall images Pillow resizes rows and columns in the other order, with rounding in between
    assert_similar(ours, theirs, *((8, 0.3) if fit == "squash" else ()))


def test_training_crops_are_resized_as_torchvision_does(settings, photograph_folder):
    crop = TrainCrop.of(settings, ALONE)
    images = open_images(photograph_folder, "train")
    order = shuffle(ALONE.seed, 0, COUNT)
    sizes = np.array([(images[index].height, images[index].width) for index in order])
    rows = make_rows(0, order)
    boxes, mirrored = crop.sample_boxes(rows, sizes)
    bicubic = crop.choose_bicubic(rows)

    def iterate_theirs() -> Iterator[Image.Image]:
        for index, box, is_mirrored, is_bicubic in zip(
            order, boxes.tolist(), mirrored, bicubic, strict=True
        ):
            filtering = InterpolationMode.BICUBIC if is_bicubic else InterpolationMode.BILINEAR
            cut = functional.resized_crop(images[index], *box, [settings.train_size] * 2, filtering)
            yield functional.hflip(cut) if is_mirrored else cut

    assert_similar(
        read_first_batch(data.open_train, replace(settings, flip=True), None), iterate_theirs()
    )
