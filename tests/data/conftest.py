"""A small folder of images for the loaders."""

import itertools
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.text import show_nothing
from resnet_recipes.data import convert as convert_module
from resnet_recipes.data import images
from resnet_recipes.data.base import Batching, DataConfig, RawBatch
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.loading.storage import Rows
from resnet_recipes.data.native import explain_unavailable
from tests.checks import get_error

sys.path.append(str(Path(__file__).parent))  # loader workers import augmentations.py by name

CLASSES = ("ant", "bee", "cat")
TRAIN, VAL = 37, 11
RAW = ConvertOptions("raw", workers=1)
SMALL_PAGE = 1 << 20  # bytes: an image of 500 px fits
ONE_RANK = Batching(0, 1, global_size=12, eval_size=4, seed=5)
requires_engine = pytest.mark.skipif(
    bool(explain_unavailable()), reason="the native library was not built"
)


def make_rows(epoch: int, indices: Sequence[int], copies: Sequence[int] | int = 0) -> Rows:
    """Return rows of these images, for tests that only use their random numbers."""
    chosen, none = np.array(indices), np.empty(0)
    return Rows(epoch, chosen, 0 * chosen + np.array(copies), none, none, none)


def make_small_config(root: Path, backend: str = "torchvision", **changes) -> DataConfig:
    """Return settings for small images that are read without workers."""
    sizes = {"train_size": 32, "eval_resize": 40, "eval_size": 32, "workers": 0}
    return DataConfig(**{"backend": backend, "root": str(root)} | sizes | changes)


def count_images(config: DataConfig) -> tuple[int, int, tuple[str, ...]]:
    """Return the numbers of training and validation images, and the classes."""
    facts = data.measure(config)
    return facts.train_examples, facts.eval_examples, facts.classes


def explain_rejected_images(config: DataConfig, ask: Callable = data.measure) -> str:
    """Return why images are rejected."""
    return str(get_error(NotReadyError, ask, config))


def open_training(
    config: DataConfig, augment: object = None, share: Batching = ONE_RANK
) -> data.TrainLoader:
    """Open the training images."""
    return data.open_train(config, data.measure(config), share, augment)


def train_pixels(config: DataConfig, steps: int, augment: object = None) -> np.ndarray:
    """Return the first training batches, uint8 [steps * 12, 3, S, S]."""
    with closing(open_training(config, augment)) as loader:
        return np.concatenate([pixels for pixels, _ in copy_batches(loader.batches(), steps)])


def copy_batches(batches: Iterator[RawBatch], count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return copies of the next batches: pixels [N, 3, H, W] and labels [N]."""
    return [
        (batch.pixels.cpu().numpy().copy(), batch.labels.cpu().numpy().copy())
        for batch in itertools.islice(batches, count)
    ]


def make_image(number: int) -> Image.Image:
    """Return smooth noise whose size and mean depend on `number`, to tell images apart."""
    rng = np.random.default_rng(number)
    width, height = (int(side) for side in rng.integers(40, 90, 2))
    coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.BICUBIC)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """37 training and 11 validation JPEGs in three classes."""
    root = tmp_path_factory.mktemp("images")
    for split, count in (("train", TRAIN), ("val", VAL)):
        for number in range(count):
            path = root / split / CLASSES[number % 3] / f"{number:03d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            make_image(number + 1000 * (split == "val")).save(path, quality=90)
    return root


@pytest.fixture
def copied_images(folder: Path, tmp_path: Path) -> Path:
    """A copy of the images, for tests that change it."""
    return shutil.copytree(folder, tmp_path / "images")


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write files with pages of 1 MiB instead of 8."""
    monkeypatch.setattr(convert_module, "PAGE_SIZE", SMALL_PAGE)


def convert_to_small_pages(source: Path, target: Path, options: ConvertOptions) -> Path:
    """Convert images to files with pages of 1 MiB instead of 8; return the target."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(convert_module, "PAGE_SIZE", SMALL_PAGE)
        convert(source, target, options, show_nothing)
    return target


@pytest.fixture(scope="session")
def betons(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images of `folder` as train.beton and val.beton, with JPEG and raw samples."""
    return convert_to_small_pages(
        folder, tmp_path_factory.mktemp("betons"), ConvertOptions(workers=1)
    )


@pytest.fixture
def copied_betons(betons: Path, tmp_path: Path) -> Path:
    """Valid files with their sidecars, for tests that damage them."""
    return Path(shutil.copytree(betons, tmp_path, dirs_exist_ok=True))


@pytest.fixture
def without_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode in Python, as without the native library."""
    for module in (data, images):
        monkeypatch.setattr(module, "explain_unavailable", lambda: "was not built")


@pytest.fixture(params=[pytest.param("engine", marks=requires_engine), "python"])
def decoder_name(request: pytest.FixtureRequest) -> str:
    """Decode with the native engine, or in Python."""
    if request.param == "python":
        request.getfixturevalue("without_engine")
    return request.param
