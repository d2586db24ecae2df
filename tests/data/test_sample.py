"""A sample of images, read before a run: the memory and time for all images."""

import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from resnet_recipes import data
from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data import sample as module
from resnet_recipes.data.base import SAMPLE_SIZE
from resnet_recipes.data.files.listing import Listing, choose_strata
from resnet_recipes.data.loading import Pipeline
from resnet_recipes.data.sample import Sample
from resnet_recipes.methods.randaugment import RandAugment
from tests.data.loaders import RAW, convert_to_small_pages, make_small_config


def test_estimated_bytes_equal_raw_file_sizes(image_folder, tmp_path):
    """The sample is the complete training set; validation images count as training images."""
    raw = convert_to_small_pages(image_folder, tmp_path, replace(RAW, max_resolution=48))
    sizes = module.open_samples(raw / "train.beton").beton.sizes
    expected = 48 * np.mean(3 * sizes.prod(axis=1))
    assert Sample.of(data.survey_images(make_small_config(image_folder))).estimate_bytes(
        48
    ) == pytest.approx(expected, abs=1)


def test_sample_of_million_images_covers_all_sizes():
    """One image in fifty is a hundred times larger; all of these are in one class."""
    count = 1_000_000
    rng = np.random.default_rng(0)
    names = [f"class/{number:07d}.jpg" for number in range(count)]
    sizes = rng.integers(9_000, 11_000, count)
    sizes[-count // 50 :] *= 100
    images = list(zip(names, sizes.tolist(), strict=True))
    listing = Listing.pack("/nowhere", ("class",), images, [count])
    paths = listing.sample(SAMPLE_SIZE)
    assert len({*paths}) == SAMPLE_SIZE
    chosen = [sizes[int(path[-11:-4])] for path in paths]
    assert np.mean(chosen) == pytest.approx(sizes.mean(), rel=0.05)


@pytest.mark.parametrize("count", [0, 1, 3, 48, 49, 100])
def test_choose_strata_gives_48_distinct_images_or_all(count):
    strata = choose_strata(np.arange(count)[::-1], 48)
    assert len({*strata.tolist()}) == min(count, 48)
    assert all(strata >= 0)


def test_sample_skips_damaged_and_special_files(copied_images):
    files = sorted((copied_images / "train").glob("*/*.jpg"))
    facts = data.survey_images(make_small_config(copied_images))
    files[0].write_bytes(b"no image")
    files[1].unlink()
    files[2].unlink()
    os.mkfifo(files[2])
    looked_at = Sample.of(facts)
    assert len(looked_at.indices) == len(files) - 3
    assert looked_at.crop_seconds(make_small_config(copied_images), None, 32) > (0.0, 0.0)


def test_crops_with_equal_settings_are_timed_once(copied_images, monkeypatch):
    built, build = [], module.build_train_pipeline
    monkeypatch.setattr(module, "build_train_pipeline", lambda *a: built.append(a) or build(*a))
    sample = Sample.of(data.survey_images(make_small_config(copied_images)))
    times = []
    for depth in (None, 1, 2):
        for side in (16, 32):
            for _ in range(2):  # separate objects, as in the runs of a sweep
                augment = RandAugment(depth=depth).augment_image() if depth else None
                times.append(sample.crop_seconds(make_small_config(copied_images), augment, side))
    assert times[::2] == times[1::2]
    assert all(first == later for first, later in times)  # nothing is kept
    assert len(built) == 6


def test_crop_seconds_rejects_truncated_images(copied_images):
    for path in (copied_images / "train").glob("*/*.jpg"):
        path.write_bytes(path.read_bytes()[:-200])
    config = make_small_config(copied_images)
    with pytest.raises(TrainingError):
        Sample.of(data.survey_images(config)).crop_seconds(config, None, 32)


def test_sample_without_images_is_a_typical_photograph(copied_images):
    """A photograph of 500 x 367 pixels becomes 352 x 258."""
    facts = data.survey_images(make_small_config(copied_images))
    shutil.rmtree(copied_images / "train")
    typical = Sample.of(facts)
    assert typical.source is None
    assert typical.estimate_bytes(352) == 3 * 352 * 258 * (
        facts.train_examples + facts.eval_examples
    )
    config = replace(make_small_config(copied_images), memory_pixels=352)
    first, later = typical.crop_seconds(config, None, 176)
    assert first > later > 0
    assert typical.crop_seconds(make_small_config(copied_images), None, 176).first_epoch < first


def test_crops_beyond_time_limit_use_one_batch(copied_images, monkeypatch):
    monkeypatch.setattr(module, "MAX_CROP_SECONDS", 0.0)
    built, read = [], Pipeline.read
    monkeypatch.setattr(
        Pipeline, "read", lambda self, orders: built.append(orders) or read(self, orders)
    )
    sample = Sample.of(data.survey_images(make_small_config(copied_images)))
    assert sample.crop_seconds(make_small_config(copied_images), None, 32) > (0.0, 0.0)
    assert len(sample.indices) > 16
    assert [len(orders[0].indices) for orders in built] == [16, 16, 16]  # three laps of one batch


@pytest.mark.parametrize("backend", ["torchvision", "ffcv"])
def test_disk_speed_excludes_cached_pages(backend, image_folder, betons, monkeypatch):
    config = make_small_config(image_folder if backend == "torchvision" else betons, backend)
    facts = data.survey_images(config)
    reads = []
    pread = os.pread

    def fail(*_: object) -> int:
        raise BlockingIOError

    def read(*arguments: int) -> bytes:
        reads.append(arguments[1:])
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", read)
    Sample.of.cache_clear()
    assert Sample.of(facts).disk_seconds == 0.0  # other tests have just written these files
    assert not reads
    monkeypatch.setattr(os, "preadv", fail)
    Sample.of.cache_clear()
    assert Sample.of(facts).disk_seconds > 0.0
    if backend == "torchvision":
        paths = (image_folder / "train").glob("*/*")
        expected = [(path.stat().st_size, 0) for path in paths]
    else:
        beton = module.open_samples(betons / "train.beton").beton
        expected = zip(beton.lengths.tolist(), beton.starts.tolist(), strict=True)
    assert sorted(reads) == sorted(expected)


def test_huge_file_is_read_in_part(tmp_path, monkeypatch):
    def fail(*_: object) -> int:
        raise BlockingIOError

    sizes = []
    monkeypatch.setattr(os, "preadv", fail)
    monkeypatch.setattr(os, "pread", lambda file, size, first: sizes.append(size))
    path = tmp_path / "sparse.jpg"
    path.touch()
    os.truncate(path, 1 << 40)
    assert module._read_cold(module.FilePart(path))
    assert sizes == [4 << 20]


def test_disk_time_is_divided_among_images(monkeypatch):
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    parts = [module.FilePart(str(number)) for number in range(4)]
    monkeypatch.setattr(module, "_read_cold", lambda part: part is parts[2])
    assert module._time_disk(parts) == 0.5


def test_disk_seconds_are_zero_if_preadv_fails(image_folder, monkeypatch):
    def fail(*_: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "preadv", fail)
    Sample.of.cache_clear()
    assert Sample.of(data.survey_images(make_small_config(image_folder))).disk_seconds == 0.0
