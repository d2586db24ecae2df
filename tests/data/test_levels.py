"""A .beton file with two levels.

Small crops use the small level, and nothing else changes.
"""

import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.base.text import do_nothing
from resnet_recipes.data import convert as convert_module
from resnet_recipes.data import open_train, survey_images
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.beton import JPEG, get_half_path, open_beton
from resnet_recipes.data.beton.samples import open_samples
from resnet_recipes.data.beton.sidecar import get_sidecar_path, read_sidecar
from resnet_recipes.data.beton.writer import RECORD
from resnet_recipes.data.convert import convert, forecast
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.files import Files
from resnet_recipes.data.images import use_decoder
from resnet_recipes.data.images.decode import Picture
from resnet_recipes.data.images.python import TrainImages
from resnet_recipes.data.loading.storage import UnreadableError
from resnet_recipes.doctor.data import check_data
from resnet_recipes.inference.images import open_labeled
from tests.data.loaders import (
    ONE_RANK,
    convert_to_small_pages,
    make_empty_rows,
    requires_decoder,
    train_pixels,
)

OPTIONS = ConvertOptions("jpg", levels=2, jpeg_quality=95, workers=1)


@pytest.fixture(scope="module")
def levels(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = convert_to_small_pages(image_folder, tmp_path_factory.mktemp("levels"), OPTIONS)
    names = [path.name for path in sorted(root.glob("*.beton"))]
    assert names == ["train.beton", "train.half.beton", "val.beton"]
    return root


def read_pixels(root: Path, side: int, **changes) -> np.ndarray:
    """Return three training batches, uint8 [36, 3, side, side]."""
    return train_pixels(make_levels_config(root, train_size=side, workers=2, **changes), 3)


def make_levels_config(root: Path, **changes) -> DataConfig:
    """Return settings that read .beton files in this folder."""
    return DataConfig(backend="ffcv", root=str(root), **changes)


def read_every_image(images: TrainImages, side: int) -> None:
    """Read every image once, cropped to `side` pixels."""
    images.fill(make_empty_rows(np.arange(len(images.labels)), side=side))


@pytest.fixture
def copied_levels(levels: Path, tmp_path: Path) -> Path:
    """Valid files, for tests that damage them."""
    return Path(shutil.copytree(levels, tmp_path / "levels"))


def test_small_level_has_half_size_rounded_up(levels):
    full = open_beton(levels / "train.beton")
    half = open_beton(get_half_path(levels / "train.beton"))
    assert np.array_equal(half.labels, full.labels)
    assert np.array_equal(half.sizes, (full.sizes + 1) // 2)


def test_jpegs_have_restart_markers_every_64_pixels(levels):
    beton = open_beton(levels / "train.beton")
    assert (beton.modes == JPEG).all()
    assert b"\xff\xdd\x00\x04\x00\x04" in beton.sample(0).tobytes()


@requires_decoder
def test_crop_size_selects_the_level(levels, copied_levels):
    get_half_path(copied_levels / "train.beton").unlink()
    assert np.array_equal(read_pixels(levels, 45), read_pixels(copied_levels, 45))
    small = read_pixels(levels, 12).astype(float)
    alone = read_pixels(copied_levels, 12, reduced_decode=False)
    assert np.array_equal(read_pixels(levels, 12, reduced_decode=False), alone)
    changed = (small != alone).any(axis=(1, 2, 3))
    assert 5 < changed.sum() < 36
    error = np.square(small - alone).mean(axis=(1, 2, 3))[changed]
    assert 10 * np.log10(255**2 / np.median(error)) > 35


def change_quantization(beton, index):
    """Damage a JPEG so that it stays valid, and only its checksum reveals the damage."""
    data = beton.sample(index).tobytes()
    place = data.index(b"\xff\xdb") + 10
    with beton.path.open("r+b") as file:
        file.seek(int(beton.starts[index]) + place)
        file.write(bytes([data[place] ^ 1]))


@requires_decoder
def test_damage_in_small_level_is_named(copied_levels):
    half = open_beton(get_half_path(copied_levels / "train.beton"))
    for index in range(len(half.starts)):
        change_quantization(half, index)
    with pytest.raises(TrainingError, match=r"is damaged in train\.half\.beton: checksum mismatch"):
        read_pixels(copied_levels, 8)
    assert "37 samples of train.half.beton are damaged" in "".join(
        finding.what for finding in check_data(copied_levels)
    )


@requires_decoder
def test_full_level_is_checked_although_small_level_was(copied_levels):
    source = open_samples(copied_levels / "train.beton")
    images = use_decoder(TrainImages(source, TrainCrop.of(DataConfig(), ONE_RANK)), threads=1)
    read_every_image(images, 8)
    change_quantization(source.beton, 0)
    read_every_image(images, 8)
    with pytest.raises(UnreadableError, match="checksum mismatch"):
        read_every_image(images, 45)


def test_small_level_of_other_images_is_rejected(copied_levels, betons):
    sidecar = read_sidecar(copied_levels / "train.beton")
    edited = replace(sidecar, source_sha256="0" * 32)
    get_sidecar_path(copied_levels / "train.beton").write_text(edited.dump())
    with pytest.raises(NotReadyError, match="does not hold the images"):
        open_samples(copied_levels / "train.beton")
    get_sidecar_path(copied_levels / "train.beton").write_text(sidecar.dump())
    for name in ("val.beton", "val.beton.json"):
        shutil.copy(betons / name, copied_levels / name.replace("val", "train.half"))
    with pytest.raises(
        NotReadyError, match=r"train\.half\.beton does not hold the images of train\.beton at half"
    ):
        survey_images(make_levels_config(copied_levels))


def test_evaluation_ignores_the_small_level(image_folder, copied_levels):
    convert(image_folder / "val", copied_levels / "val.beton", OPTIONS, do_nothing)
    assert get_half_path(copied_levels / "val.beton").exists()
    config = DataConfig(root=str(copied_levels), workers=1)
    with closing(open_labeled(config, ("ant", "bee", "cat"), 3, ONE_RANK)) as images:
        assert images.examples == 11


def test_resume_rejects_data_without_its_small_level(levels, copied_levels):
    get_half_path(copied_levels / "train.beton").unlink()
    before, after = (survey_images(make_levels_config(root)) for root in (levels, copied_levels))
    assert before.train_digest != after.train_digest
    with pytest.raises(NotReadyError, match="has changed since the run started"):
        open_train(make_levels_config(copied_levels), replace(before, root=copied_levels), ONE_RANK)


@pytest.mark.usefixtures("small_pages")
def test_convert_reads_each_image_once_for_both_levels(image_folder, tmp_path, monkeypatch):
    read = Files.read
    expected = forecast(image_folder, tmp_path, OPTIONS)
    count = Counter()

    def count_read(files: Files, index: int) -> Picture:
        count[files.path(index)] += 1
        return read(files, index)

    monkeypatch.setattr(Files, "read", count_read)
    convert(image_folder, tmp_path, OPTIONS, do_nothing, expected)
    assert len(count) == 37 + 11
    assert set(count.values()) == {1}


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("torn", ["train", "train.half"])
def test_conversion_killed_between_levels_resumes(
    image_folder, tmp_path, levels, monkeypatch, torn
):
    monkeypatch.setattr(convert_module, "_CHUNK_IMAGES", 4)

    def stop(done: int, _: int) -> None:
        if done == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(image_folder, tmp_path, OPTIONS, stop)
    journal = tmp_path / f"{torn}.beton.partial.journal"
    journal.write_bytes(journal.read_bytes()[: -4 * RECORD.itemsize])
    expected = forecast(image_folder, tmp_path, OPTIONS)
    steps = []
    assert expected.resumed_images == 12
    convert(image_folder, tmp_path, OPTIONS, lambda done, _: steps.append(done), expected)
    assert steps[0] == 16
    for path in sorted(levels.glob("*.beton")):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.usefixtures("small_pages")
def test_missing_small_level_is_rebuilt(image_folder, tmp_path, levels):
    shutil.copytree(levels, tmp_path, dirs_exist_ok=True)
    half = get_half_path(tmp_path / "train.beton")
    half.unlink()
    get_sidecar_path(half).unlink()
    convert(image_folder, tmp_path, OPTIONS, do_nothing)
    for path in sorted(levels.glob("*.beton")):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.usefixtures("small_pages")
def test_forecast_counts_both_levels(image_folder, tmp_path, levels):
    prediction = forecast(image_folder, tmp_path, OPTIONS)
    assert prediction.images == 37 + 11
    size = sum(path.stat().st_size for path in levels.glob("*.beton"))
    assert 0.5 < size / prediction.bytes < 2
