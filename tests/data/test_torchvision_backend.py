"""The folder backend: torchvision's geometry, and clear errors when files or workers fail."""

import itertools
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from augmentations import Darken, LocalError, Stall
from PIL import Image
from torchvision.transforms import v2

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError, TrainingError
from resnet_recipes.data.base import DataConfig, Share
from resnet_recipes.data.images import decode, native, python
from resnet_recipes.data.loading import pipeline
from tests.jobs.nursery import alive

ALONE = Share(0, 1, 12, 4, seed=5)


@pytest.fixture
def broken(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the images with one truncated, one missing and one a text file."""
    root = tmp_path / "images"
    shutil.copytree(folder, root)
    for number, damage in ((4, "cut"), (5, "gone"), (7, "text")):
        path = root / "train" / ("ant", "bee", "cat")[number % 3] / f"{number:03d}.jpg"
        whole = path.read_bytes()
        path.unlink()
        match damage:
            case "cut":
                path.write_bytes(whole[: len(whole) // 2])
            case "gone":
                path.symlink_to("nowhere.jpg")
            case "text":
                path.write_text("no image")
    return root


def config(root: Path, **changes) -> DataConfig:
    """Return settings for small images, without workers."""
    sizes = {"train_size": 32, "eval_resize": 40, "eval_size": 32}
    return DataConfig(
        **{"backend": "torchvision", "root": str(root), "workers": 0} | sizes | changes
    )


def opened(settings: DataConfig, augment=None):
    """Open the training images with these settings."""
    return data.open_train(settings, data.measure(settings), ALONE, augment)


def test_evaluation_cuts_what_torchvision_cuts(folder):
    settings = config(folder)
    facts = data.measure(settings)
    transform = v2.Compose([v2.Resize(40, antialias=True), v2.CenterCrop(32)])
    files = [path for name in facts.classes for path in sorted((folder / "val" / name).iterdir())]
    loader = data.open_eval(settings, facts, ALONE)
    images = np.concatenate(
        [batch.pixels.permute(0, 2, 3, 1).numpy().copy() for batch in loader.batches()]
    )
    for ours, path in zip(images, files, strict=True):
        theirs = np.asarray(transform(Image.open(path).convert("RGB")))
        assert np.abs(ours.astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("size", [(700, 20), (23, 500), (1, 3000), (121, 20)])
def test_evaluation_of_an_elongated_image_resizes_only_its_middle(
    folder, tmp_path, monkeypatch, size
):
    shutil.copytree(folder, tmp_path / "images")
    picture = Image.open(next((folder / "val" / "ant").iterdir())).resize(size, Image.BICUBIC)
    picture.save(tmp_path / "images" / "val" / "ant" / "!first.png")
    settings, resized_to = config(tmp_path / "images"), []
    monkeypatch.setattr(
        python, "resized", lambda pixels, *to: resized_to.append(to) or decode.resized(pixels, *to)
    )
    ours = (
        next(data.open_eval(settings, data.measure(settings), ALONE).batches())
        .pixels[0]
        .permute(1, 2, 0)
        .numpy()
    )
    transform = v2.Compose([v2.Resize(40, antialias=True), v2.CenterCrop(32)])
    # 40 * 500 / 23 is not a whole number
    assert np.abs(ours.astype(int) - np.asarray(transform(picture))).mean() < 2
    assert max(map(max, resized_to)) <= 4 * 40


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_image_ends_training_with_its_path_and_what_to_type(broken, workers):
    loader = opened(config(broken, workers=workers))
    said = (
        r"train/(bee|cat)/00[457]\.jpg .*\n    data.on_bad_image=skip .*resnet-recipes doctor "
        r"data /.*images "
    )
    with pytest.raises(TrainingError, match=said):
        list(itertools.islice(loader.batches(), 3))
    loader.close()


def test_skipped_images_are_named_and_replaced_the_same_way_by_any_number_of_workers(broken):
    runs = []
    for workers in (0, 2):
        loader = opened(config(broken, workers=workers, on_bad_image="skip"))
        runs.append(
            [
                (batch.pixels.clone(), batch.labels.clone())
                for batch in itertools.islice(loader.batches(), 6)
            ]
        )
        assert {path[-7:] for path in loader.skipped} == {"004.jpg", "005.jpg", "007.jpg"}
        loader.close()
    assert all(
        np.array_equal(a, b)
        for one, other in zip(*runs, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def test_a_bad_validation_image_is_an_error_even_where_bad_images_are_skipped(broken):
    path = next((broken / "val" / "ant").iterdir())
    path.write_bytes(b"")
    settings = config(broken, on_bad_image="skip")
    with pytest.raises(TrainingError, match="val/ant"):
        list(data.open_eval(settings, data.measure(settings), ALONE).batches())


def test_augmentation_is_a_function_of_seed_epoch_and_index(folder):
    runs = []
    for workers in (0, 3):
        loader = opened(config(folder, workers=workers), Darken())
        runs.append([batch.pixels.clone() for batch in itertools.islice(loader.batches(), 4)])
        loader.close()
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))
    plain = opened(config(folder))
    assert next(plain.batches()).pixels.float().mean() > runs[0][0].float().mean()


@pytest.mark.parametrize("failure", [LocalError, StopIteration, SystemExit])
def test_every_failure_in_a_worker_becomes_a_message_with_the_path(folder, failure):
    loader = opened(config(folder, workers=2), Darken(failure))
    with pytest.raises(TrainingError, match=rf"train/.*jpg.*{failure.__name__}"):
        next(loader.batches())
    loader.close()


def test_a_killed_worker_is_reported_with_what_it_was_reading(folder, tmp_path):
    loader = opened(config(folder, workers=1), Stall(tmp_path / "worker"))
    batches = loader.batches()
    killer = subprocess.Popen([sys.executable, "-c", KILLER, str(tmp_path)])
    with pytest.raises(TrainingError, match=r"SIGKILL.*while reading .*\.jpg"):
        next(batches)
    assert killer.wait() == 0
    loader.close()


KILLER = """
import os, pathlib, signal, sys, time
while not (found := list(pathlib.Path(sys.argv[1]).glob("worker.*"))):
    time.sleep(0.05)
os.kill(int(found[0].suffix[1:]), signal.SIGKILL)
"""


def test_stuck_workers_are_given_up_on_and_what_they_were_reading_is_named(
    folder, tmp_path, monkeypatch
):
    first = opened(config(folder, workers=1))
    next(first.batches())  # the first worker takes seconds to start
    first.close()
    monkeypatch.setattr(pipeline, "STUCK_SECONDS", 1.0)
    loader = opened(config(folder, workers=2), Stall(tmp_path / "worker"))
    with pytest.raises(TrainingError, match=r"no image was read for 1 s.*\.jpg"):
        next(loader.batches())
    assert not [
        child for child in multiprocessing.active_children() if child.name.startswith("ForkServer")
    ]


def ignores_sigterm(child: multiprocessing.Process) -> bool:
    lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
    ignored = int(next(line for line in lines if line.startswith("SigIgn")).split()[1], 16)
    return bool(ignored >> (signal.SIGTERM - 1) & 1)


def test_workers_ignore_sigterm_and_ctrl_c(folder, monkeypatch):
    # the engine has threads, the Python decoder processes
    monkeypatch.setattr(native, "why_not", lambda: "left out")
    loader = opened(config(folder, workers=2))
    batches = loader.batches()
    next(batches)
    children = multiprocessing.active_children()
    deadline = time.monotonic() + 20
    while not all(map(ignores_sigterm, children)) and time.monotonic() < deadline:
        time.sleep(0.01)  # one of them may have served the first batch alone
    for child in children:
        os.kill(child.pid, signal.SIGTERM)
        os.kill(child.pid, signal.SIGINT)
    assert len(list(itertools.islice(batches, 9))) == 9
    loader.close()


TRAINER = """
import multiprocessing.util, os, sys, time
from concurrent.futures import process
from resnet_recipes import data
from resnet_recipes.data.images import native
native.why_not = lambda: "left out"    # the engine has threads, the Python decoder processes
from resnet_recipes.data.base import DataConfig, Share
end = "killed" if os.fork() else "finished"
settings = DataConfig(backend="torchvision", root=sys.argv[1], train_size=32, eval_resize=40,
                      eval_size=32, workers=2)
loader = data.open_train(settings, data.measure(settings), Share(0, 1, 12, 4, 5))
batches = loader.batches()
next(batches)
print(end, os.getpid(), *(child.pid for child in multiprocessing.active_children()), flush=True)
if end == "killed":
    time.sleep(60)
process._python_exit()    # what Python does when a program ends; the nursery's forks do not
multiprocessing.util._exit_function()
"""


def test_workers_do_not_outlive_the_trainer_nor_import_it(folder, nursery, tmp_path):
    # would start workers without end, if they imported it
    (tmp_path / "trainer.py").write_text(TRAINER)
    trainer = nursery.run(tmp_path, "trainer", str(folder))
    while len(said := [line.split() for line in trainer.said()[0].splitlines()]) < 2:
        assert trainer.poll() is None, trainer.said()
        time.sleep(0.02)
    assert sorted(line[0] for line in said) == ["finished", "killed"]
    pids = [int(pid) for line in said for pid in line[1:]]
    assert len(pids) == 6
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.wait()
    deadline = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))


def test_without_the_native_decoder_the_images_are_counted_and_it_is_reported(folder, monkeypatch):
    monkeypatch.setattr(native, "why_not", lambda: "was not built")
    monkeypatch.setattr(native, "description", lambda: pytest.fail("there is no decoder to ask"))
    facts = data.measure(DataConfig(backend="torchvision", root=str(folder)))
    assert "in Python, at about half the speed: the native decoder was not built" in facts.notes[-1]


@pytest.mark.parametrize("split", ["train", "val"])
def test_other_images_than_the_run_began_with_are_not_opened(folder, tmp_path, split):
    shutil.copytree(folder, tmp_path / "images")
    config = DataConfig(root=str(tmp_path / "images"), backend="torchvision", workers=0)
    facts, share = data.measure(config), Share(0, 1, 4, 4, 0)
    path = next((tmp_path / "images" / split).glob("*/*"))
    path.write_bytes(path.read_bytes() + b" ")
    opens = data.open_train if split == "train" else data.open_eval
    with pytest.raises(NotReadyError, match=f"files in {split} differ in name or size"):
        opens(config, facts, share)
