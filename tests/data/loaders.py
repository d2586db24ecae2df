"""Settings of small images, and what loaders read from them; for tests of data and its users."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.text import do_nothing
from resnet_recipes.data import convert as convert_module
from resnet_recipes.data.base import Batching, DataConfig, RawBatch
from resnet_recipes.data.beton import open_beton
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.loading.storage import Rows
from resnet_recipes.data.native import find_decoder_fault
from tests.shared.checks import get_error

CLASSES = ("ant", "bee", "cat")
TRAIN, VAL = 37, 11
RAW = ConvertOptions("raw", workers=1)
SMALL_PAGE = 1 << 20  # bytes: an image of 500 px fits
ONE_RANK = Batching(0, 1, global_size=12, eval_size=4, seed=5)
requires_decoder = pytest.mark.skipif(
    bool(find_decoder_fault()), reason="the native library was not built"
)


def make_rows(epoch: int, indices: Sequence[int], copies: Sequence[int] | int = 0) -> Rows:
    """Return rows of these images, for tests that only use their random numbers."""
    chosen = np.array(indices)
    none = np.empty(0)
    return Rows(epoch, chosen, 0 * chosen + np.array(copies), none, none, none)


def make_small_config(root: Path, backend: str = "torchvision", **changes) -> DataConfig:
    """Return settings for small images that are read without workers."""
    sizes = {"train_size": 32, "eval_resize": 40, "eval_size": 32, "workers": 0}
    return DataConfig(**{"backend": backend, "root": str(root)} | sizes | changes)


def count_images(root: Path, **changes) -> tuple[int, int, tuple[str, ...]]:
    facts = data.survey_images(make_small_config(root, **changes))
    return facts.train_examples, facts.eval_examples, facts.classes


def explain_rejected_images(config: DataConfig, ask: Callable = data.survey_images) -> str:
    return str(get_error(NotReadyError, ask, config))


def explain_rejected_folder(root: Path, **changes) -> str:
    return explain_rejected_images(make_small_config(root, **changes))


def open_training(
    config: DataConfig, augment: object = None, batching: Batching = ONE_RANK
) -> data.TrainLoader:
    return data.open_train(config, data.survey_images(config), batching, augment)


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


def convert_to_small_pages(source: Path, target: Path, options: ConvertOptions) -> Path:
    """Convert images to files with pages of 1 MiB instead of 8; return the target."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(convert_module, "PAGE_SIZE", SMALL_PAGE)
        convert(source, target, options, do_nothing)
    return target


def read_samples(path: Path) -> list[tuple[int, bytes]]:
    """Return (label, bytes) of every sample of a .beton file, sorted."""
    beton = open_beton(path)
    samples = enumerate(beton.labels)
    return sorted((int(label), beton.sample(index).tobytes()) for index, label in samples)


def make_empty_rows(indices: np.ndarray, epoch: int = 0, side: int = 32) -> Rows:
    count = len(indices)
    pixels = np.empty((count, side, side, 3), np.uint8)
    return Rows(
        epoch, indices, indices % 2, pixels, np.empty(count, np.int64), np.zeros(count, bool)
    )
