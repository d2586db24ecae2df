"""A .beton file of two levels.

Small crops are read from the small one, and nothing else changes.
"""

import itertools
import os
import shutil
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.data import measure, open_train
from resnet_recipes.data.base import DataConfig, Share
from resnet_recipes.data.beton.file import JPEG, half_path, open_beton
from resnet_recipes.data.beton.samples import open_samples
from resnet_recipes.data.beton.sidecar import read_sidecar, sidecar_path
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.convert.forecast import forecast
from resnet_recipes.data.convert.run import convert
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.images.native import train_images
from resnet_recipes.data.images.python import TrainImages
from resnet_recipes.data.inference import open_labelled
from resnet_recipes.data.loading.storage import Rows, UnreadableError
from resnet_recipes.data.native.library import why_not
from resnet_recipes.doctor.data import check_data

built = pytest.mark.skipif(bool(why_not()), reason="the native library was not built")
SHARE = Share(0, 1, global_size=12, eval_size=4, seed=5)
OPTIONS = ConvertOptions("jpg", levels=2, jpeg_quality=95, workers=1)


@pytest.fixture(scope="module")
def levels(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images of `folder` as files of two levels."""
    root = tmp_path_factory.mktemp("levels")
    made = convert(folder, root, OPTIONS, lambda *_: None)
    assert [path.name for path in made] == ["train.beton", "train.half.beton", "val.beton"]
    return root


def pixels(root: Path, side: int, **changes) -> np.ndarray:
    """Return three training batches, uint8 [36, 3, side, side]."""
    config = DataConfig(
        **{"backend": "ffcv", "root": str(root), "train_size": side, "workers": 2} | changes
    )
    loader = open_train(config, measure(config), SHARE)
    try:
        return np.concatenate(
            [batch.pixels.numpy().copy() for batch in itertools.islice(loader.batches(), 3)]
        )
    finally:
        loader.close()


def fill(images: TrainImages, side: int) -> None:
    """Read every image once, cropped to `side` pixels."""
    indices = np.arange(len(images.labels))
    pixels, labels = np.empty((len(indices), side, side, 3), np.uint8), np.empty_like(indices)
    reading = np.zeros(len(indices), bool)
    images.fill(Rows(0, indices, np.zeros_like(indices), pixels, labels, reading))


@pytest.fixture
def copied(levels: Path, tmp_path: Path) -> Path:
    """Good files, to be damaged."""
    return Path(shutil.copytree(levels, tmp_path / "levels"))


def test_the_small_level_has_the_same_images_at_half_their_size_rounded_up(levels):
    full, half = open_beton(levels / "train.beton"), open_beton(half_path(levels / "train.beton"))
    assert np.array_equal(half.labels, full.labels)
    assert np.array_equal(half.sizes, (full.sizes + 1) // 2)


def test_the_jpegs_have_restart_markers_every_64_pixels(levels):
    beton = open_beton(levels / "train.beton")
    assert (beton.modes == JPEG).all()
    assert b"\xff\xdd\x00\x04\x00\x04" in beton.sample(0).tobytes()


@built
def test_small_crops_come_from_the_small_level_and_large_ones_from_the_full_one(levels, copied):
    half_path(copied / "train.beton").unlink()
    assert np.array_equal(pixels(levels, 45), pixels(copied, 45))
    small, alone = pixels(levels, 12).astype(float), pixels(copied, 12, reduced_decode=False)
    changed = (small != alone).any(axis=(1, 2, 3))
    assert 5 < changed.sum() < 36
    error = np.square(small - alone).mean(axis=(1, 2, 3))[changed]
    assert 10 * np.log10(255**2 / np.median(error)) > 35


@built
def test_without_reduced_decode_every_crop_comes_from_the_full_level(levels, copied):
    half_path(copied / "train.beton").unlink()
    assert np.array_equal(
        pixels(levels, 12, reduced_decode=False), pixels(copied, 12, reduced_decode=False)
    )


@built
def test_damage_in_the_small_level_is_named(copied):
    half = open_beton(half_path(copied / "train.beton"))
    with half.path.open("r+b") as file:
        for start, length in zip(half.starts.tolist(), half.lengths.tolist(), strict=True):
            file.seek(start + length * 2 // 3)
            file.write(b"\1\2\3")
    with pytest.raises(TrainingError, match=r"is damaged in train\.half\.beton: checksum mismatch"):
        pixels(copied, 8)
    assert "37 samples of train.half.beton are damaged" in "".join(
        finding.what for finding in check_data(copied)
    )


@built
def test_what_was_read_from_the_small_level_is_still_checked_in_the_full_one(copied):
    source = open_samples(copied / "train.beton")
    images = train_images(source, TrainCrop.of(DataConfig(), SHARE), None, reduce=True, threads=1)
    fill(images, 8)
    data = source.beton.sample(0).tobytes()
    at = data.index(b"\xff\xdb") + 10  # a quantisation step: still a valid JPEG
    with (copied / "train.beton").open("r+b") as file:
        file.seek(source.beton.starts[0] + at)
        file.write(bytes([data[at] ^ 1]))
    fill(images, 8)
    with pytest.raises(UnreadableError, match="checksum mismatch"):
        fill(images, 45)


def test_a_small_level_of_images_that_were_edited_since_is_refused(copied):
    sidecar = read_sidecar(copied / "train.beton")
    edited = replace(sidecar, source_sha256="0" * 32)
    sidecar_path(copied / "train.beton").write_text(edited.dump())
    with pytest.raises(NotReadyError, match="does not hold the images"):
        open_samples(copied / "train.beton")


def test_a_small_level_of_another_file_is_refused(copied, betons):
    for name in ("val.beton", "val.beton.json"):
        shutil.copy(betons / name, copied / name.replace("val", "train.half"))
    with pytest.raises(
        NotReadyError, match=r"train\.half\.beton: does not hold the images of train\.beton at half"
    ):
        measure(DataConfig(backend="ffcv", root=str(copied)))


def test_validation_images_may_have_a_small_level_which_evaluation_ignores(folder, copied):
    convert(folder / "val", copied / "val.beton", OPTIONS, lambda *_: None)
    assert half_path(copied / "val.beton").exists()
    config = DataConfig(root=str(copied), workers=1)
    with closing(open_labelled(config, ("ant", "bee", "cat"), 3, SHARE)) as images:
        assert images.examples == 11


def test_the_small_level_is_part_of_what_a_run_began_with(levels, copied):
    half_path(copied / "train.beton").unlink()
    before, after = (
        measure(DataConfig(backend="ffcv", root=str(root))) for root in (levels, copied)
    )
    assert before.train_digest != after.train_digest
    with pytest.raises(NotReadyError, match="is not the file that the run began with"):
        open_train(
            DataConfig(backend="ffcv", root=str(copied)), replace(before, root=copied), SHARE
        )


def test_the_forecast_counts_images_once_and_both_files(folder, tmp_path, levels):
    said = forecast(folder, tmp_path, OPTIONS)
    assert said.images == 37 + 11
    made = sum(path.stat().st_size for path in levels.glob("*.beton"))
    assert 0.5 < made / said.bytes < 2
    assert list(said.speeds) == ([] if why_not() else [176, 88])


#: FFCV's own reader and decoder, in a separate process: importing FFCV changes torch's thread
#: count.
FFCV_DECODES = """
import sys
import numpy as np
from ffcv.libffcv import imdecode
from ffcv.reader import Reader
for name in ("train.beton", "train.half.beton"):
    path = f"{sys.argv[1]}/{name}"
    reader, content = Reader(path), np.fromfile(path, np.uint8)
    ends = {int(row["ptr"]): int(row["ptr"] + row["size"]) for row in reader.alloc_table}
    fields = [("mode", "u1"), ("width", "<u2"), ("height", "<u2"), ("ptr", "<u8")]
    for image in reader.metadata["f0"].view(np.dtype(fields, align=False)):
                                                      ("ptr", "<u8")], align=False)):
        height, width, start = int(image["height"]), int(image["width"]), int(image["ptr"])
        pixels = np.empty((height, width, 3), np.uint8)
        stored, size = content[start:ends[start]], (height, width)
        assert imdecode(stored, pixels, *size, *size, 0, 0, 1, 1, False, False) == 0
        print(pixels.mean())
"""


@pytest.mark.ffcv
@pytest.mark.slow
@pytest.mark.skipif(find_spec("ffcv") is None, reason="ffcv is not installed")
def test_ffcv_itself_reads_and_decodes_both_levels(levels, nursery, tmp_path):
    (tmp_path / "ffcv_decodes.py").write_text(FFCV_DECODES)
    interpreted = os.environ | {"NUMBA_DISABLE_JIT": "1"}  # compiling takes longer than 74 images
    code, out, err = nursery.run(
        tmp_path, "ffcv_decodes", str(levels), environment=interpreted
    ).wait()
    assert code == 0, err
    full, half = np.array(out.split(), float).reshape(2, 37)
    assert full.std() > 5
    assert np.abs(full - half).max() < 4  # the same images
