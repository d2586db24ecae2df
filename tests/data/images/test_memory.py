"""Images in memory: decoded once, with the crops of a raw .beton of that size, whatever happens."""

import itertools
import multiprocessing
import os
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from resnet_recipes import data
from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.files import Files
from resnet_recipes.data.images import memory
from resnet_recipes.data.images.memory import Shrunk
from resnet_recipes.methods.randaugment import RandAugment
from tests.data.augmentations import Darken
from tests.data.conftest import ALONE, built, image, small, small_betons
from tests.data.native.batch import encoded

LONGEST = 48  # pixels: most images are larger, some are not

RAW = ConvertOptions("raw", max_resolution=LONGEST, shuffle=False, workers=1)

STEPS = 7  # two epochs and more, of 41 images in batches of 12


@pytest.fixture(scope="module")
def mixed(folder: Path, tmp_path_factory) -> Path:
    """The images of `folder`, and some that the engine does not decode, or that are small."""
    root = tmp_path_factory.mktemp("mixed") / "images"
    shutil.copytree(folder, root)
    picture = image(7)
    (root / "train" / "ant" / "a.png").write_bytes(encoded(picture, "PNG"))
    (root / "train" / "bee" / "cmyk.jpg").write_bytes(encoded(picture.convert("CMYK")))
    (root / "train" / "bee" / "gray.jpg").write_bytes(encoded(picture.convert("L")))
    (root / "train" / "cat" / "tiny.jpg").write_bytes(encoded(Image.new("RGB", (3, 2), "red")))
    return root


@pytest.fixture(scope="module")
def raw(mixed: Path, tmp_path_factory) -> Path:
    """The same images in the same order, as raw .beton files of that size."""
    return small_betons(mixed, tmp_path_factory.mktemp("raw"), RAW)


def in_memory(root: Path, **changes) -> DataConfig:
    """Return settings for small images in memory."""
    return small(root, memory_pixels=LONGEST, **changes)


def crops(config: DataConfig, augment: object = None, first: int = 0, **share) -> list[bytes]:
    """Return the training crops of each step, and the crops of evaluation."""
    facts, mine = data.measure(config), replace(ALONE, **share)
    with (
        closing(data.open_train(config, facts, mine, augment)) as train,
        closing(data.open_eval(config, facts, mine)) as evaluation,
    ):
        batches = itertools.islice(train.batches(first), STEPS - first)
        return [
            batch.pixels.permute(0, 2, 3, 1).numpy().tobytes()
            for batch in itertools.chain(batches, evaluation.batches())
        ]


VARIANTS = {
    "plain": ({}, None),
    "threads": ({"workers": 2}, None),
    "reduced": ({"train_size": 16}, None),
    "bicubic": ({"interpolation": "random"}, None),
    "tensorflow": ({"crop_rule": "tensorflow"}, None),
    "randaugment": ({}, RandAugment().augment_sample()),
    "in Python": ({}, Darken()),
    "in processes": ({"workers": 2}, Darken()),
    "padded": ({"fit": "pad"}, None),
    "balanced": ({"sampling": "balanced"}, None),
    "repeated": ({"repeats": 2}, None),
}


@built
@pytest.mark.parametrize("name", VARIANTS)
def test_crops_from_memory_equal_those_of_a_raw_beton(mixed, raw, name):
    changes, augment = VARIANTS[name]
    expected = crops(small(raw, "ffcv", **changes), augment)
    assert crops(in_memory(mixed, **changes), augment) == expected


@built
def test_crops_of_a_beton_in_memory_equal_those_of_its_raw_copy(mixed, tmp_path):
    jpegs = ConvertOptions("jpg", shuffle=False, max_resolution=None, workers=1)
    original = small_betons(mixed, tmp_path / "jpegs", jpegs)
    raw = small_betons(original, tmp_path / "raw", RAW)
    assert crops(in_memory(original, backend="ffcv")) == crops(small(raw, "ffcv"))


def test_without_the_engine_images_are_shrunk_and_not_kept(mixed, raw, without_engine, monkeypatch):
    monkeypatch.setattr("resnet_recipes.data.native.why_not", lambda: "was not built")
    assert crops(in_memory(mixed)) == crops(small(raw, "ffcv"))


@built
def test_ranks_and_resumed_runs_have_the_crops_of_one_rank(mixed):
    config = in_memory(mixed)
    whole = crops(config)[:STEPS]
    halves = [crops(config, rank=rank, world_size=2)[:STEPS] for rank in (0, 1)]
    assert [first + second for first, second in zip(*halves, strict=True)] == whole
    assert crops(config, first=4)[: STEPS - 4] == whole[4:]


@pytest.fixture
def copied(mixed: Path, tmp_path: Path) -> Path:
    """A copy of the images, to be deleted."""
    return shutil.copytree(mixed, tmp_path / "images")


@built
def test_an_image_is_decoded_once_by_all_processes(copied):
    expected = crops(in_memory(copied))
    config = in_memory(copied, workers=2)
    facts = data.measure(config)
    with closing(data.open_train(config, facts, ALONE)) as first:
        list(itertools.islice(first.batches(), 8))  # two epochs and more: every image
        with closing(data.open_train(config, facts, ALONE)) as second:
            for path in (copied / "train").glob("*/*"):
                path.write_bytes(b"x" * path.stat().st_size)
            batches = itertools.islice(second.batches(), STEPS)
            found = [batch.pixels.permute(0, 2, 3, 1).numpy().tobytes() for batch in batches]
    assert found == expected[:STEPS]


def _read_all(source: Shrunk) -> None:
    """Read every image, in another process."""
    for index in range(len(source)):
        source.read(index)


@built
def test_memory_is_shared_with_processes_that_know_the_name(copied):
    files, name = Files.of(in_memory(copied), "train"), f"test {os.getpid()}"
    source = Shrunk(files, LONGEST, name)
    process = multiprocessing.get_context("spawn").Process(target=_read_all, args=(source,))
    process.start()
    process.join()
    shutil.rmtree(copied / "train")
    assert [source.read(index).width for index in range(len(source))]
    another = Shrunk(files, LONGEST, name)  # found by its name
    assert another.read(0).whole().tobytes() == source.read(0).whole().tobytes()


@built
@pytest.mark.parametrize("left", [0, 2])
def test_images_without_room_are_decoded_each_time(mixed, raw, monkeypatch, left):
    free = itertools.chain([1 << 30] * (2 + left), itertools.repeat(0))
    monkeypatch.setattr(memory, "available_memory", lambda: next(free))
    monkeypatch.setattr(memory, "INTERVAL", 0)
    assert crops(in_memory(mixed)) == crops(small(raw, "ffcv"))


@built
def test_bad_images_are_reported_and_skipped_as_from_files(copied):
    bad = copied / "train" / "ant" / "000.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    with pytest.raises(TrainingError) as files:
        crops(small(copied))
    with pytest.raises(TrainingError) as kept:
        crops(in_memory(copied))
    assert str(kept.value) == str(files.value)
    skipping = in_memory(copied, on_bad_image="skip")
    with closing(data.open_train(skipping, data.measure(skipping), ALONE)) as loader:
        list(itertools.islice(loader.batches(), STEPS))
        assert loader.source.skipped == (str(bad),)
