"""The native decoder gives the pixels and the errors of the Python decoder."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.files import Files
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.images import NativeImages, use_decoder
from resnet_recipes.data.images.decode import ChangedError
from resnet_recipes.data.images.python import EvalImages, PythonRows, TrainImages
from resnet_recipes.data.loading.storage import Storage, UnreadableError, fill
from resnet_recipes.data.native import NativeDecoder
from resnet_recipes.methods.randaugment import RandAugment
from tests.data.loaders import make_empty_rows, make_rows, requires_decoder
from tests.shared.checks import get_error

pytestmark = requires_decoder

CROP = TrainCrop(3, DataConfig())
FULL = TrainCrop(3, DataConfig(reduced_decode=False))
KINDS = {"png.png": {}, "cmyk.jpg": {}, "gray.jpg": {}, "progressive.jpg": {"progressive": True}}


@pytest.fixture
def files(image_folder: Path, tmp_path: Path) -> Files:
    shutil.copytree(image_folder / "train", tmp_path / "train")
    image = Image.open(next((image_folder / "train").rglob("*.jpg")))
    for name, options in KINDS.items():
        image.convert({"cmyk.jpg": "CMYK", "gray.jpg": "L"}.get(name, "RGB")).save(
            tmp_path / "train" / "ant" / name, **options
        )
    return Files(Listing.of(tmp_path / "train"))


def open_in_decoder(*settings) -> Storage:
    return use_decoder(TrainImages(*settings), 2)


def fill_all(storage: PythonRows, files: Files, epoch: int = 2, side: int = 32) -> np.ndarray:
    """Return all images as uint8 [N, side, side, 3]."""
    rows = make_empty_rows(np.arange(len(files)), epoch, side)
    storage.fill(rows)
    return rows.pixels


def test_file_unreadable_for_a_moment_keeps_native_pixels(files, monkeypatch):
    images = TrainImages(files, CROP)
    storage = use_decoder(images, 2)
    broken = 1
    expected = fill_all(storage, files)
    python = fill_all(images, files)
    assert not np.array_equal(python[broken], expected[broken])
    path = Path(files.path(broken))
    decoder_fill = NativeDecoder.fill
    calls = []

    def fill(decoder: NativeDecoder, *settings) -> np.ndarray:
        calls.append(decoder)
        if len(calls) > 1:
            return decoder_fill(decoder, *settings)
        away = path.rename(path.with_suffix(".away"))
        status = decoder_fill(decoder, *settings)
        away.rename(path)
        return status

    monkeypatch.setattr(NativeDecoder, "fill", fill)
    assert np.array_equal(fill_all(storage, files), expected)


@pytest.mark.parametrize(
    ("changes", "side", "most"),
    [
        ({}, 32, 1),
        ({"crop_rule": "tensorflow"}, 32, 1),
        ({"interpolation": "bicubic"}, 32, 1),
        ({"interpolation": "random"}, 32, 1),
        ({"reduced_decode": True}, 16, 2),
    ],
    ids=str,
)
def test_training_crops_equal_python_decoder(files, changes, side, most):
    crop = TrainCrop(3, replace(FULL.config, **changes))
    ours, python = (make(files, crop) for make in (open_in_decoder, TrainImages))
    assert isinstance(ours, NativeImages)
    theirs = fill_all(python, files, side=side)
    difference = np.abs(fill_all(ours, files, side=side).astype(int) - theirs)
    assert difference.max() <= most
    assert difference.mean() < 0.1
    assert (difference > 1).mean() < 1e-4
    if "interpolation" in changes:
        unlike = (theirs != fill_all(TrainImages(files, FULL), files)).any((1, 2, 3))
        assert unlike.all() == (changes["interpolation"] == "bicubic")
        assert unlike.any()


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_evaluation_crops_equal_python_decoder(files, interpolation):
    theirs = EvalImages(files, DataConfig(eval_resize=40, eval_interpolation=interpolation))
    ours = use_decoder(theirs, 2)
    assert isinstance(ours, NativeImages)
    assert np.array_equal(fill_all(ours, files), fill_all(theirs, files))


def test_native_augmentation_equals_python(files):
    augment = RandAugment(augmentation_set="safe").augment_image()
    pixels = fill_all(open_in_decoder(files, FULL), files)
    for index in range(len(files)):
        rng = FULL.generator(make_rows(2, [index], [index % 2]), 0)
        pixels[index] = np.asarray(augment(Image.fromarray(pixels[index]), rng))
    others = ("png.png", "cmyk.jpg")
    jpegs = [not files.path(index).endswith(others) for index in range(len(files))]
    ours = fill_all(open_in_decoder(files, FULL, augment), files)
    assert np.array_equal(ours[jpegs], pixels[jpegs])


def test_unsupported_images_stay_in_python(files, tmp_path, request):
    (tmp_path / "pngs" / "a").mkdir(parents=True)
    for number in range(5):
        Image.new("RGB", (40, 40)).save(tmp_path / "pngs" / "a" / f"{number}.png")
    pngs = Files(Listing.of(tmp_path / "pngs"))
    assert type(open_in_decoder(files, CROP, lambda image, rng: image)) is TrainImages
    assert type(open_in_decoder(pngs, CROP)) is TrainImages
    request.getfixturevalue("without_decoder")
    assert type(open_in_decoder(files, CROP)) is TrainImages
    assert type(use_decoder(EvalImages(files, DataConfig()), 2)) is EvalImages


def test_damaged_file_is_named_as_in_python(files):
    path = Path(files.path(5))
    data = bytearray(path.read_bytes())
    data[-2:] = b"\0\0"
    path.write_bytes(data)
    sentences = []
    for storage in (open_in_decoder(files, CROP), TrainImages(files, CROP)):
        error = get_error(UnreadableError, storage.fill, make_empty_rows(np.arange(8)))
        sentences.append(str(error))
    assert sentences[0] == sentences[1]
    rows = make_empty_rows(np.arange(4, 8))
    assert fill(open_in_decoder(files, CROP), rows, skip_bad=True) == [5]


def test_file_of_unlisted_size_is_reported(files):
    path = Path(files.path(3))
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ChangedError, match="when it was listed"):
        open_in_decoder(files, CROP).fill(make_empty_rows(np.arange(8)))
