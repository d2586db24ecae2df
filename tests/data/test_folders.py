"""The folder backend: torchvision geometry, and clear errors if files or workers fail."""

import errno
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from augmentations import Darken, LocalError, Stall
from PIL import Image
from torchvision.transforms import v2

from resnet_recipes import data
from resnet_recipes.base.errors import (
    BadTrainingImageError,
    BadValidationImageError,
    NotReadyError,
    TrainingError,
)
from resnet_recipes.data import loading
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.images import decode, python
from tests.data.loaders import (
    ONE_RANK,
    copy_batches,
    make_small_config,
    open_training,
    train_pixels,
)
from tests.shared.forks import is_alive

BILINEAR, BICUBIC = (
    v2.Compose([v2.Resize(40, how), v2.CenterCrop(32)])
    for how in (v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC)
)


@pytest.fixture
def broken_images(copied_images: Path) -> Path:
    """Return a copy of the images with a truncated, a missing and a text file."""
    cut, gone, text = (
        copied_images / "train" / name for name in ("bee/004.jpg", "cat/005.jpg", "bee/007.jpg")
    )
    os.truncate(cut, cut.stat().st_size // 2)
    gone.unlink()
    gone.symlink_to("nowhere.jpg")
    text.write_text("no image")
    return copied_images


def read_evaluation(settings: DataConfig) -> np.ndarray:
    """Return all evaluation images, int [N, S, S, 3]."""
    with closing(data.open_eval(settings, data.survey_images(settings), ONE_RANK)) as loader:
        batches = [pixels for pixels, _ in copy_batches(loader.batches(), 99)]
    return np.concatenate(batches).transpose(0, 2, 3, 1).astype(int)


@pytest.mark.parametrize(("how", "theirs"), [("bilinear", BILINEAR), ("bicubic", BICUBIC)])
def test_evaluation_crop_equals_torchvision(image_folder, how, theirs):
    files = [
        path
        for place in sorted((image_folder / "val").iterdir())
        for path in sorted(place.iterdir())
    ]
    crops = read_evaluation(make_small_config(image_folder, eval_interpolation=how))
    for ours, path in zip(crops, files, strict=True):
        assert np.array_equal(ours, np.asarray(theirs(Image.open(path).convert("RGB"))))


@pytest.mark.parametrize("size", [(700, 20), (23, 500), (1, 3000), (121, 20)])
def test_evaluation_resizes_only_the_middle_of_panoramas(copied_images, monkeypatch, size):
    picture = Image.open(next((copied_images / "val" / "ant").iterdir())).resize(
        size, Image.BICUBIC
    )
    picture.save(copied_images / "val" / "ant" / "!first.png")
    resized_to = []
    monkeypatch.setattr(
        python,
        "resize_exactly",
        lambda pixels, *to: resized_to.append(to) or decode.resize_exactly(pixels, *to),
    )
    ours = read_evaluation(make_small_config(copied_images))[0]
    # 40 * 500 / 23 is not an integer
    assert np.abs(ours - np.asarray(BILINEAR(picture))).mean() < 2
    assert max(map(max, resized_to)) <= 4 * 40


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_image_ends_training_with_path_and_fix(broken_images, workers):
    message = (
        r"train/(bee|cat)/00[457]\.jpg .*\n    hint:  data.on_bad_image=skip .*\n"
        r"    try:   resnet-recipes doctor data /.*images$"
    )
    with pytest.raises(BadTrainingImageError, match=message):
        train_pixels(make_small_config(broken_images, workers=workers), 3)


def test_bad_validation_image_is_never_skipped(broken_images):
    next((broken_images / "val" / "ant").iterdir()).write_bytes(b"")
    with pytest.raises(BadValidationImageError, match="val/ant"):
        read_evaluation(make_small_config(broken_images, on_bad_image="skip"))


def test_disk_error_is_not_a_damaged_image(broken_images, monkeypatch):
    next((broken_images / "val" / "ant").iterdir()).write_bytes(b"")

    def fail(path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(decode, "open_regular", fail)
    with pytest.raises(TrainingError, match=r"val/ant.* Input/output error") as caught:
        read_evaluation(make_small_config(broken_images, workers=0))
    assert type(caught.value) is TrainingError


def test_augmentation_depends_on_seed_epoch_and_index(image_folder):
    runs = [
        train_pixels(make_small_config(image_folder, workers=workers), 4, Darken())
        for workers in (0, 3)
    ]
    assert np.array_equal(*runs)
    assert train_pixels(make_small_config(image_folder), 4).mean() > runs[0].mean()


@pytest.mark.parametrize("failure", [LocalError, StopIteration, SystemExit])
def test_worker_failure_names_the_path(image_folder, failure):
    with pytest.raises(TrainingError, match=rf"train/.*jpg.*{failure.__name__}"):
        train_pixels(make_small_config(image_folder, workers=2), 1, Darken(failure))


def test_killed_worker_is_reported_with_its_file(image_folder, tmp_path):
    killer = subprocess.Popen([sys.executable, "-c", KILLER, str(tmp_path)])
    with pytest.raises(TrainingError, match=r"SIGKILL \(out of memory.*while reading .*\.jpg"):
        train_pixels(make_small_config(image_folder, workers=1), 1, Stall(tmp_path / "worker"))
    assert killer.wait() == 0


KILLER = """
import os, pathlib, signal, sys, time
while not (found := list(pathlib.Path(sys.argv[1]).glob("worker.*"))):
    time.sleep(0.05)
os.kill(int(found[0].suffix[1:]), signal.SIGKILL)
"""


def test_stuck_workers_time_out_naming_their_files(image_folder, tmp_path, monkeypatch):
    train_pixels(
        make_small_config(image_folder, workers=1), 1
    )  # the first worker takes seconds to start
    monkeypatch.setattr(loading, "STUCK_SECONDS", 1.0)
    with pytest.raises(TrainingError, match=r"no image was read for 1 s.*\.jpg"):
        train_pixels(make_small_config(image_folder, workers=2), 1, Stall(tmp_path / "worker"))
    numbers = [int(note.suffix[1:]) for note in tmp_path.glob("worker.*")]
    assert numbers
    assert not any(map(is_alive, numbers))


def is_ignoring_sigterm(child: multiprocessing.Process) -> bool:
    lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
    ignored = int(next(line for line in lines if line.startswith("SigIgn")).split()[1], 16)
    return bool(ignored >> (signal.SIGTERM - 1) & 1)


@pytest.mark.usefixtures("without_decoder")  # Python decodes in processes, not threads
def test_workers_ignore_sigterm_and_ctrl_c(image_folder):
    with closing(open_training(make_small_config(image_folder, workers=2))) as loader:
        batches = loader.batches()
        next(batches)
        children = multiprocessing.active_children()
        deadline = time.monotonic() + 20
        while not all(map(is_ignoring_sigterm, children)) and time.monotonic() < deadline:
            time.sleep(0.01)  # a single worker may have served the first batch
        for child in children:
            os.kill(child.pid, signal.SIGTERM)
            os.kill(child.pid, signal.SIGINT)
        assert len(list(itertools.islice(batches, 9))) == 9


TRAINER = """
import multiprocessing.util, os, sys, time
from concurrent.futures import process
from resnet_recipes import data
from resnet_recipes.data import images
images.find_decoder_fault = lambda: "left out"  # so processes
from resnet_recipes.data.base import Batching, DataConfig
end = "killed" if os.fork() else "finished"
settings = DataConfig(backend="torchvision", root=sys.argv[1], train_size=32, eval_resize=40,
                      eval_size=32, workers=2)
loader = data.open_train(settings, data.survey_images(settings), Batching(0, 1, 12, 4, 5))
batches = loader.batches()
next(batches)
print(end, os.getpid(), *(child.pid for child in multiprocessing.active_children()), flush=True)
if end == "killed":
    time.sleep(60)
process._python_exit()    # what Python does when a program ends; forks do not
multiprocessing.util._exit_function()
"""


def test_workers_die_with_the_trainer(image_folder, forks, tmp_path):
    # would start workers forever if they imported it
    (tmp_path / "trainer.py").write_text(TRAINER)
    trainer = forks.run(tmp_path, "trainer", str(image_folder))
    while len(lines := [line.split() for line in trainer.read_streams()[0].splitlines()]) < 2:
        assert trainer.poll() is None, trainer.read_streams()
        time.sleep(0.02)
    assert sorted(line[0] for line in lines) == ["finished", "killed"]
    pids = [int(pid) for line in lines for pid in line[1:]]
    assert len(pids) == 6
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.wait()
    deadline = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("split", ["train", "val"])
def test_open_rejects_images_changed_since_measurement(copied_images, split):
    facts = data.survey_images(make_small_config(copied_images))
    path = next((copied_images / split).glob("*/*"))
    path.write_bytes(path.read_bytes() + b" ")
    opens = data.open_train if split == "train" else data.open_eval
    with pytest.raises(NotReadyError, match=f"files in {split} differ in name or size"):
        opens(make_small_config(copied_images), facts, ONE_RANK)
