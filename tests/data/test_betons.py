"""The ffcv backend beyond the common contract.

Correct pixels and no unnoticed damage, with the native decoder and in Python.
"""

import itertools
import json
import os
import shutil
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from resnet_recipes.base.errors import BadTrainingImageError, NotReadyError, TrainingError
from resnet_recipes.data import survey_images
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.beton import JPEG, RAW, open_beton
from resnet_recipes.data.beton.sidecar import get_sidecar_path
from tests.data.loaders import make_small_config, open_training, requires_decoder, train_pixels


def make_two_worker_config(root: Path, **changes) -> DataConfig:
    """Return settings for small images that two workers read."""
    return make_small_config(root, "ffcv", **{"workers": 2} | changes)


def overwrite_bytes(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@requires_decoder
def test_native_pixels_are_close_to_python(betons, request):
    settings = make_two_worker_config(betons, reduced_decode=False)
    pixels = train_pixels(settings, 7).astype(int)
    request.getfixturevalue("without_decoder")
    difference = np.abs(pixels - train_pixels(replace(settings, workers=0), 7))
    assert difference.max() <= 2  # one gray level, twice
    assert difference.mean() < 0.1


@pytest.mark.usefixtures("decoder_name")
@pytest.mark.parametrize("damage", ["no tables", "another size", "ends early"])
def test_damaged_jpeg_is_named_without_checksum(copied_betons, damage):
    path = copied_betons / "train.beton"
    beton = open_beton(path)
    index = int(np.flatnonzero(beton.modes == JPEG)[0])
    half = int(beton.lengths[index]) // 2
    end = b"\xff\xd9"
    offset, data = {
        "no tables": (20, bytes(400)),
        "another size": (beton.sample(index).tobytes().index(b"\xff\xc0") + 5, b"\0\x10"),
        "ends early": (half, end + bytes(half - 4) + end),
    }[damage]
    overwrite_bytes(path, int(beton.starts[index]) + offset, data)
    for split in ("train", "val"):
        get_sidecar_path(copied_betons / f"{split}.beton").unlink()
    with pytest.raises(TrainingError, match=rf"train\.beton: sample {index} is damaged"):
        train_pixels(make_two_worker_config(copied_betons, workers=0), 6)


@pytest.mark.usefixtures("decoder_name")
def test_truncated_beton_ends_training_with_message(copied_betons):
    # no thread may be decoding at the moment of truncation: see native/test_hostile
    with closing(open_training(make_two_worker_config(copied_betons, workers=0))) as loader:
        batches = loader.batches()
        next(batches)
        os.truncate(copied_betons / "train.beton", 5000)
        with pytest.raises(TrainingError, match="the file was truncated after it was opened"):
            list(itertools.islice(batches, 20))


@pytest.mark.usefixtures("decoder_name")
@pytest.mark.parametrize("mode", [JPEG, RAW])
def test_flipped_bit_is_reported_with_its_sample(copied_betons, mode):
    path = copied_betons / "train.beton"
    beton = open_beton(path)
    index = int(np.flatnonzero(beton.modes == mode)[3])
    offset = int(beton.starts[index] + beton.lengths[index] * 2 // 3)
    overwrite_bytes(path, offset, bytes([beton.content[offset] ^ 1]))
    with pytest.raises(TrainingError, match=rf"sample {index} .*checksum mismatch") as caught:
        train_pixels(make_two_worker_config(copied_betons, workers=0), 6)
    assert not isinstance(caught.value, BadTrainingImageError)  # no sample can be skipped


def test_abandoned_loader_leaves_no_thread(betons):
    before = set(threading.enumerate())
    threads = torch.get_num_threads()
    for _ in range(5):
        with closing(open_training(make_two_worker_config(betons))) as loader:
            next(loader.batches())
    assert set(threading.enumerate()) <= before  # a thread of another test may end meanwhile
    assert torch.get_num_threads() == threads


def test_mismatched_betons_are_rejected(copied_betons):
    train, val = (copied_betons / f"{split}.beton.json" for split in ("train", "val"))
    shutil.copy(copied_betons / "val.beton", copied_betons / "train.beton")
    shutil.copy(val, train)
    with pytest.raises(NotReadyError, match=r"train\.beton is the val split according to its"):
        survey_images(make_two_worker_config(copied_betons))
    older = json.loads(train.read_text())
    del older["split"]
    train.write_text(json.dumps(older))
    assert survey_images(make_two_worker_config(copied_betons)).train_examples == 11
    val.write_text(val.read_text().replace('"ant"', '"zebra"'))
    with pytest.raises(NotReadyError, match=r"differs from train\.beton in its classes"):
        survey_images(make_two_worker_config(copied_betons))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"on_bad_image": "skip"}, r"data\.on_bad_image=skip.*damaged"),
        ({"val_share": 0.1}, r"convert SRC DST val_share=0\.1"),
        ({"fold": "1/5"}, r"data\.fold=1/5 applies only to image files"),
        ({"share": 0.1}, r"data\.share=0\.1 applies only to image files"),
    ],
)
def test_beton_rejects_settings_of_image_files(betons, changes, message):
    with pytest.raises(NotReadyError, match=message):
        survey_images(make_two_worker_config(betons, **changes))


def test_facts_report_whether_beton_fits_in_memory(betons, monkeypatch):
    assert "read from disk once" in survey_images(make_two_worker_config(betons)).details[0]
    monkeypatch.setattr("resnet_recipes.data.beton.samples.get_available_memory", lambda: 1 << 10)
    assert "in every epoch" in survey_images(make_two_worker_config(betons)).notes[0].text
    train_pixels(
        make_two_worker_config(betons), 3
    )  # looks ahead instead of relying on the page cache


def test_advice_for_large_beton_is_accepted(betons, monkeypatch):
    monkeypatch.setattr("resnet_recipes.data.survey.fits_memory", lambda _: False)
    config = make_two_worker_config(betons)
    key, value = survey_images(config).notes[0].fix.split("=")
    assert (key, value) == ("data.order", "quasi_random")
    notes = survey_images(replace(config, order=value)).notes
    assert "in every epoch" in notes[0].text
    assert not notes[0].fix
