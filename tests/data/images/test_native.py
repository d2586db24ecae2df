"""Images through the native engine: the pixels and the complaints of the Python decoder."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.files.images import Files
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.images import native
from resnet_recipes.data.images.decode import ChangedError
from resnet_recipes.data.images.native import (
    NativeEvalImages,
    NativeTrainImages,
    eval_images,
    train_images,
)
from resnet_recipes.data.images.python import EvalImages, Images, TrainImages
from resnet_recipes.data.loading.storage import Rows, UnreadableError, fill
from resnet_recipes.data.native.library import why_not
from resnet_recipes.methods.randaugment import RandAugment

pytestmark = pytest.mark.skipif(bool(why_not()), reason="the native library was not built")

CROP = TrainCrop(3, (0.08, 1.0), (0.75, 4 / 3), flip=True)
KINDS = {"png.png": {}, "cmyk.jpg": {}, "grey.jpg": {}, "progressive.jpg": {"progressive": True}}


@pytest.fixture
def files(folder: Path, tmp_path: Path) -> Files:
    """The training images, and four of other kinds."""
    shutil.copytree(folder / "train", tmp_path / "train")
    image = Image.open(next((folder / "train").rglob("*.jpg")))
    for name, options in KINDS.items():
        image.convert({"cmyk.jpg": "CMYK", "grey.jpg": "L"}.get(name, "RGB")).save(
            tmp_path / "train" / "ant" / name, **options
        )
    return Files(Listing.of(tmp_path / "train"))


def filled(storage: Images, files: Files, epoch: int = 2, side: int = 32) -> np.ndarray:
    """Return all images as uint8 [N, side, side, 3]."""
    rows = rows_for(np.arange(len(files)), epoch, side)
    storage.fill(rows)
    return rows.pixels


def rows_for(indices: np.ndarray, epoch: int = 0, side: int = 32) -> Rows:
    """Return rows to fill."""
    count = len(indices)
    pixels = np.empty((count, side, side, 3), np.uint8)
    return Rows(
        epoch, indices, indices % 2, pixels, np.empty(count, np.int64), np.zeros(count, bool)
    )


@pytest.mark.parametrize("rule", ["torchvision", "tensorflow"])
def test_training_crops_are_those_of_the_python_decoder(rule, files):
    crop = replace(CROP, rule=rule)
    ours, theirs = train_images(files, crop, None, False, 2), TrainImages(files, crop, None, False)
    assert isinstance(ours, NativeTrainImages)
    difference = np.abs(filled(ours, files).astype(int) - filled(theirs, files))
    assert difference.max() <= 1
    assert difference.mean() < 0.1


def test_crops_at_a_reduced_size_are_within_two_grey_levels_of_the_python_decoders(files):
    ours, theirs = train_images(files, CROP, None, True, 2), TrainImages(files, CROP, None, True)
    difference = np.abs(filled(ours, files, side=16).astype(int) - filled(theirs, files, side=16))
    assert difference.max() <= 2
    assert (difference > 1).mean() < 1e-4


@pytest.mark.parametrize("interpolation", ["bicubic", "random"])
def test_interpolation_is_that_of_the_python_decoder(files, interpolation):
    crop = replace(CROP, interpolation=interpolation)
    ours, theirs = (
        filled(storage, files).astype(int)
        for storage in (
            train_images(files, crop, None, False, 2),
            TrainImages(files, crop, None, False),
        )
    )
    assert np.abs(ours - theirs).max() <= 1
    plain = filled(TrainImages(files, CROP, None, False), files)
    unlike = (theirs != plain).any(axis=(1, 2, 3))
    assert unlike.all() if interpolation == "bicubic" else 0 < unlike.sum() < len(files)


@pytest.mark.parametrize("bicubic", [False, True])
def test_evaluation_crops_are_those_of_the_python_decoder(files, bicubic):
    ours, theirs = eval_images(files, 40, bicubic, 2), EvalImages(files, 40, bicubic)
    assert isinstance(ours, NativeEvalImages)
    assert np.abs(filled(ours, files).astype(int) - filled(theirs, files)).max() <= 1


def test_an_augmentation_with_steps_draws_the_same_as_in_python(files):
    augment = RandAugment(augmentation_set="safe").augment_sample()
    ours = train_images(files, CROP, augment, False, 2)
    plain = train_images(files, CROP, None, False, 2)
    pixels = filled(plain, files)
    for index in range(len(files)):
        rng = CROP.generator(2, index, index % 2)
        pixels[index] = np.asarray(augment(Image.fromarray(pixels[index]), rng))
    jpegs = [
        index
        for index in range(len(files))
        if not files.path(index).endswith(("png.png", "cmyk.jpg"))
    ]
    assert np.array_equal(filled(ours, files)[jpegs], pixels[jpegs])


def test_an_augmentation_of_python_alone_stays_there(files):
    assert type(train_images(files, CROP, lambda image, rng: image, True, 2)) is TrainImages


def test_a_folder_of_pngs_is_left_to_processes(tmp_path):
    (tmp_path / "a").mkdir()
    for number in range(5):
        Image.new("RGB", (40, 40)).save(tmp_path / "a" / f"{number}.png")
    assert type(train_images(Files(Listing.of(tmp_path)), CROP, None, True, 2)) is TrainImages


def test_without_the_library_everything_is_as_before(files, monkeypatch):
    monkeypatch.setattr(native, "why_not", lambda: "was not built")
    assert type(train_images(files, CROP, None, True, 2)) is TrainImages
    assert type(eval_images(files, 40, False, 2)) is EvalImages


def test_a_damaged_file_is_named_as_in_python(files):
    path = Path(files.path(5))
    data = bytearray(path.read_bytes())
    data[-2:] = b"\0\0"
    path.write_bytes(data)
    sentences = []
    for storage in (train_images(files, CROP, None, True, 2), TrainImages(files, CROP)):
        with pytest.raises(UnreadableError) as failure:
            storage.fill(rows_for(np.arange(8)))
        sentences.append(str(failure.value))
    assert sentences[0] == sentences[1]
    rows = rows_for(np.arange(4, 8))
    assert fill(train_images(files, CROP, None, True, 2), rows, skip_bad=True) == [5]


def test_a_file_of_another_size_than_it_was_listed_with_is_reported(files):
    path = Path(files.path(3))
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ChangedError, match="when it was listed"):
        train_images(files, CROP, None, True, 2).fill(rows_for(np.arange(8)))
