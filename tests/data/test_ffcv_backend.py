"""The ffcv backend beyond the contract.

The right pixels and no unnoticed damage, from the engine and in Python.
"""

import itertools
import json
import os
import shutil
import threading
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.data import measure, open_eval, open_train
from resnet_recipes.data.base import DataConfig, Share
from resnet_recipes.data.beton.file import JPEG, RAW, Beton, open_beton
from resnet_recipes.data.beton.sidecar import sidecar_path
from resnet_recipes.data.images import native
from resnet_recipes.data.native.library import why_not
from resnet_recipes.data.order import shuffled

built = pytest.mark.skipif(bool(why_not()), reason="the native library was not built")

SHARE = Share(0, 1, global_size=12, eval_size=4, seed=5)


@pytest.fixture(params=[pytest.param("engine", marks=built), "python"])
def decoded_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Decode by the native engine, or in Python."""
    if request.param == "python":
        monkeypatch.setattr(native, "why_not", lambda: "was not built")
    return request.param


def config(root: Path, **changes) -> DataConfig:
    """Return settings for small images."""
    small = {"train_size": 32, "eval_resize": 40, "eval_size": 32, "workers": 2}
    return DataConfig(**{"backend": "ffcv", "root": str(root)} | small | changes)


def train_pixels(config: DataConfig, steps: int) -> np.ndarray:
    """Return the first training batches, uint8 [steps * 12, 3, S, S]."""
    loader = open_train(config, measure(config), SHARE)
    try:
        return np.concatenate(
            [batch.pixels.numpy().copy() for batch in itertools.islice(loader.batches(), steps)]
        )
    finally:
        loader.close()


@pytest.fixture
def copied(betons: Path, tmp_path: Path) -> Path:
    """Good files with their notes, to be damaged."""
    shutil.copytree(betons, tmp_path, dirs_exist_ok=True)
    return tmp_path


def overwrite(path: Path, place: int, data: bytes) -> None:
    """Change some bytes of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


@built
def test_the_engines_pixels_are_close_to_pythons(betons, monkeypatch):
    plain = {"reduced_decode": False}
    pixels = train_pixels(config(betons, **plain), 7).astype(int)
    monkeypatch.setattr(native, "why_not", lambda: "was not built")
    difference = np.abs(pixels - train_pixels(config(betons, workers=0, **plain), 7))
    assert difference.max() <= 2  # each within one grey level of Pillow's
    assert difference.mean() < 0.1


def test_about_half_of_the_images_are_mirrored_and_none_is_otherwise_changed(betons):
    whole = config(betons, crop_scale=(1.0, 1.0), flip=False)
    plain, mirrored = train_pixels(whole, 3), train_pixels(config(betons, crop_scale=(1.0, 1.0)), 3)
    flipped = np.array(
        [np.array_equal(a[:, :, ::-1], b) for a, b in zip(plain, mirrored, strict=True)]
    )
    same = np.array([np.array_equal(a, b) for a, b in zip(plain, mirrored, strict=True)])
    assert (flipped | same).all()
    assert 8 <= flipped.sum() <= 28  # of 36: four standard deviations


def damage_without_note(beton: Beton, name: str) -> tuple[int, bytes]:
    """Return a position and the bytes to write there, so that the first JPEG is damaged."""
    index = int(np.flatnonzero(beton.modes == JPEG)[0])
    start, length = int(beton.starts[index]), int(beton.lengths[index])
    return {
        "no start": (start, b"\0\0"),
        "no end": (start + length - 2, b"\0\0"),
        "ends early": (
            start + length // 2,
            b"\xff\xd9" + bytes(length - length // 2 - 4) + b"\xff\xd9",
        ),
        "no tables": (start + 20, bytes(400)),
        "another size": (start + beton.sample(index).tobytes().index(b"\xff\xc0") + 5, b"\0\x10"),
    }[name]


@pytest.mark.usefixtures("decoded_by")
@pytest.mark.parametrize("name", ["no start", "no end", "ends early", "no tables", "another size"])
def test_a_damaged_jpeg_is_named_even_without_a_checksum(copied, name):
    path = copied / "train.beton"
    overwrite(path, *damage_without_note(open_beton(path), name))
    sidecar_path(path).unlink()
    sidecar_path(copied / "val.beton").unlink()
    index = int(np.flatnonzero(open_beton(path).modes == JPEG)[0])
    with pytest.raises(TrainingError, match=rf"train\.beton: sample {index} is damaged"):
        train_pixels(config(copied, workers=0), 6)


@pytest.mark.usefixtures("decoded_by")
def test_a_file_that_is_cut_short_while_it_is_read_ends_training_with_a_sentence(copied):
    # nothing may be decoding at the moment of the cut: see native/test_hostile
    alone = config(copied, workers=0)
    loader = open_train(alone, measure(alone), SHARE)
    batches = loader.batches()
    next(batches)
    os.truncate(copied / "train.beton", 5000)
    with pytest.raises(TrainingError, match="the file was cut short after it was opened"):
        list(itertools.islice(batches, 20))
    loader.close()


@pytest.mark.usefixtures("decoded_by")
@pytest.mark.parametrize("mode", [JPEG, RAW])
def test_one_wrong_bit_in_an_image_is_named_when_it_is_first_read(copied, mode):
    path = copied / "train.beton"
    beton = open_beton(path)
    index = int(np.flatnonzero(beton.modes == mode)[3])
    place = int(beton.starts[index] + beton.lengths[index] * 2 // 3)
    overwrite(path, place, bytes([beton.content[place] ^ 1]))
    with pytest.raises(TrainingError, match=rf"sample {index} .*checksum mismatch"):
        train_pixels(config(copied, workers=0), 6)


def test_loaders_left_half_way_leave_no_thread(betons):
    before, threads = threading.active_count(), torch.get_num_threads()
    for _ in range(5):
        loader = open_train(config(betons), measure(config(betons)), SHARE)
        next(loader.batches())
        loader.close()
    assert threading.active_count() == before
    assert torch.get_num_threads() == threads


def test_files_that_do_not_belong_together_are_refused(copied, betons):
    sidecar_path(copied / "train.beton").unlink()
    shutil.copy(copied / "val.beton", copied / "train.beton")
    shutil.copy(betons / "val.beton.json", copied / "train.beton.json")
    with pytest.raises(
        NotReadyError, match=r"train\.beton: is the val split according to its sidecar"
    ):
        measure(config(copied))
    older = json.loads((copied / "train.beton.json").read_text())
    del older["split"]
    (copied / "train.beton.json").write_text(json.dumps(older))
    assert measure(config(copied)).train_examples == 11
    note = (copied / "val.beton.json").read_text().replace('"ant"', '"zebra"')
    (copied / "val.beton.json").write_text(note)
    with pytest.raises(NotReadyError, match=r"differs from train\.beton in its classes"):
        measure(config(copied))


def test_skipping_bad_images_is_refused_with_the_reason(betons):
    with pytest.raises(NotReadyError, match=r"data\.on_bad_image=skip.*damaged"):
        measure(config(betons, on_bad_image="skip"))
    with pytest.raises(NotReadyError, match=r"convert SRC DST val_share=0\.1"):
        measure(config(betons, val_share=0.1))


def test_the_facts_say_whether_the_file_fits_into_memory(betons, monkeypatch):
    assert "os_cache=true" in measure(config(betons)).notes[0]
    monkeypatch.setattr("resnet_recipes.data.beton.samples.available_memory", lambda: 1 << 10)
    assert "os_cache=false" in measure(config(betons)).notes[0]
    train_pixels(config(betons), 3)  # reads ahead instead of relying on the page cache


#: FFCV's own writer, in a separate process: importing FFCV changes torch's thread count. Image and
#: label follow from the index.
FFCV_WRITES = """
import sys
import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter

class Dataset:
    def __len__(self):
        return 37
    def __getitem__(self, index):
        pixels = np.random.default_rng(index).integers(0, 256, (4, 4, 3), np.uint8)
        return pixels.repeat(8, 0).repeat(8, 1), index % 3

for name, mode in (("train", "proportion"), ("val", "raw")):
    fields = {"image": RGBImageField(mode), "label": IntField()}
    writer = DatasetWriter(f"{sys.argv[1]}/{name}.beton", fields, num_workers=2)
    writer.from_indexed_dataset(Dataset(), chunksize=5)
"""


@pytest.mark.slow
@pytest.mark.ffcv
@pytest.mark.skipif(find_spec("ffcv") is None, reason="ffcv is not installed")
def test_files_that_ffcvs_own_writer_wrote_are_read(nursery, tmp_path):
    (tmp_path / "ffcv_writes.py").write_text(FFCV_WRITES)
    interpreted = os.environ | {"NUMBA_DISABLE_JIT": "1"}  # compiling takes longer than 37 images
    code, _, err = nursery.run(
        tmp_path, "ffcv_writes", str(tmp_path), environment=interpreted
    ).wait()
    assert code == 0, err
    settings = config(
        tmp_path, eval_resize=32, crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=False
    )
    facts = measure(settings)
    assert (facts.train_examples, facts.eval_examples, facts.classes) == (37, 37, ("0", "1", "2"))
    assert "has no sidecar" in "".join(facts.notes)
    images = [
        np.random.default_rng(index).integers(0, 256, (4, 4, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        for index in range(37)
    ]

    loader = open_eval(settings, facts, SHARE)
    batches = [
        (batch.pixels.permute(0, 2, 3, 1).numpy().copy(), batch.labels.tolist())
        for batch in loader.batches()
    ]
    loader.close()
    assert [label for _, labels in batches for label in labels] == [
        index % 3 for index in range(37)
    ]
    assert np.array_equal(np.concatenate([pixels for pixels, _ in batches]), images)

    modes = open_beton(tmp_path / "train.beton").modes
    assert set(modes) == {JPEG, RAW}
    order = shuffled(SHARE.seed, 0, 37)[:36]
    for image, index in zip(train_pixels(settings, 3), order, strict=True):
        difference = np.abs(image.transpose(1, 2, 0).astype(int) - images[index])
        # JPEG: under 10; another image or BGR: over 40
        assert difference.max() == 0 if modes[index] == RAW else difference.mean() < 20


def test_quasi_random_order_delivers_each_image_once_an_epoch(betons):
    whole = config(
        betons, order="quasi_random", crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=False
    )
    loader = open_train(whole, measure(whole), Share(0, 1, 1, 4, seed=5))
    images = [batch.pixels.numpy().tobytes() for batch in itertools.islice(loader.batches(), 37)]
    loader.close()
    assert len(set(images)) == 37
