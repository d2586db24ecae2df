"""A conversion forecasts its cost, survives what happens to it, and delivers what it was given."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from resnet_recipes.base.errors import NotReadyError, RecipeError, TrainingError
from resnet_recipes.data.beton import writer as beton_writer
from resnet_recipes.data.beton.file import METADATA_START, open_beton
from resnet_recipes.data.beton.sidecar import sidecar_path
from resnet_recipes.data.convert import run as converting
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.convert.forecast import forecast
from resnet_recipes.data.convert.pool import encode_one
from resnet_recipes.data.convert.run import convert
from resnet_recipes.data.convert.source import BetonSource
from tests.jobs.nursery import alive

RAW = ConvertOptions("raw", workers=1)


def silent(done: int, total: int) -> None:
    """Show no progress."""


def contents(path: Path) -> list[tuple[int, bytes]]:
    """Return (label, bytes) of every sample."""
    beton = open_beton(path)
    return [(int(label), beton.sample(index).tobytes()) for index, label in enumerate(beton.labels)]


def names(folder: Path) -> set[str]:
    """Return the names in a folder."""
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write to the disk after every four images."""
    monkeypatch.setattr("resnet_recipes.data.convert.pool._CHUNK", 4)


def test_every_image_arrives_with_its_label(folder, tmp_path):
    assert convert(folder, tmp_path, RAW, silent) == [
        tmp_path / "train.beton",
        tmp_path / "val.beton",
    ]
    for split in ("train", "val"):
        expected = []
        for label, name in enumerate(("ant", "bee", "cat")):
            expected += [
                (label, Image.open(path).tobytes()) for path in (folder / split / name).iterdir()
            ]
        assert sorted(contents(tmp_path / f"{split}.beton")) == sorted(expected)
    assert names(tmp_path) == {"train.beton", "train.beton.json", "val.beton", "val.beton.json"}


def test_the_order_is_shuffled_by_the_seed_unless_refused(folder, tmp_path):
    labels = {}
    in_order = ConvertOptions("raw", shuffle=False, workers=1)
    for name, options in {
        "a": RAW,
        "b": ConvertOptions("raw", seed=1, workers=1),
        "c": in_order,
    }.items():
        convert(folder / "train", tmp_path / f"{name}.beton", options, silent)
        labels[name] = open_beton(tmp_path / f"{name}.beton").labels.tolist()
    assert labels["c"] == sorted(labels["c"])
    assert labels["a"] != labels["b"]
    assert sorted(labels["a"]) == sorted(labels["b"]) == labels["c"]


@pytest.mark.slow
def test_processes_write_the_same_file_as_one(folder, tmp_path, small_chunks):
    for name, workers in (("one", 1), ("two", 2)):
        convert(folder / "val", tmp_path / f"{name}.beton", ConvertOptions(workers=workers), silent)
    assert (tmp_path / "one.beton").read_bytes() == (tmp_path / "two.beton").read_bytes()


def test_a_forecast_is_near_the_truth_and_writes_nothing(folder, tmp_path):
    said = forecast(folder, tmp_path, RAW)
    assert (said.images, said.sampled, said.resumed_images, said.unreadable) == (48, 48, 0, ())
    assert not names(tmp_path)
    convert(folder, tmp_path, RAW, silent, said)
    written = sum(path.stat().st_size for path in tmp_path.glob("*.beton"))
    assert abs(said.bytes / written - 1) < 0.05
    assert 0 < said.minutes < 1


def test_a_beton_can_be_made_from_another_at_another_size(betons, tmp_path):
    convert(
        betons, tmp_path, ConvertOptions("raw", max_resolution=32, shuffle=False, workers=1), silent
    )
    old, new = open_beton(betons / "train.beton"), open_beton(tmp_path / "train.beton")
    assert new.sizes.max() == 32
    assert new.classes == old.classes
    assert new.labels.tolist() == old.labels.tolist()


def test_the_note_says_how_the_file_was_made(folder, tmp_path):
    convert(folder, tmp_path, RAW, silent)
    note = json.loads(sidecar_path(tmp_path / "train.beton").read_text())
    assert note["classes"] == ["ant", "bee", "cat"]
    assert note["examples"] == 37
    assert note["source"] == str(folder / "train")
    assert note["options"]["write_mode"] == "raw"
    assert len(note["source_sha256"]) == 32


def test_an_interrupted_conversion_resumes_and_gives_the_same_file(folder, tmp_path, small_chunks):
    convert(folder / "train", tmp_path / "whole.beton", RAW, silent)

    def interrupt(done, total):
        if done >= 16:
            raise KeyboardInterrupt

    target = tmp_path / "train.beton"
    with pytest.raises(KeyboardInterrupt):
        convert(folder / "train", target, RAW, interrupt)
    assert not target.exists()
    with (tmp_path / "train.beton.partial").open("ab") as file:
        file.write(b"torn")
    with (tmp_path / "train.beton.partial.journal").open("ab") as file:
        file.write(b"torn")
    assert forecast(folder / "train", target, RAW).resumed_images == 16
    steps = []
    convert(folder / "train", target, RAW, lambda *step: steps.append(step))
    assert steps[0][0] == 20
    assert target.read_bytes() == (tmp_path / "whole.beton").read_bytes()
    assert names(tmp_path) == {"whole.beton", "whole.beton.json", "train.beton", "train.beton.json"}


def test_a_split_that_is_finished_is_not_made_again_while_the_other_is_not(folder, tmp_path):
    convert(folder, tmp_path, RAW, silent)
    old = (tmp_path / "train.beton").stat().st_mtime_ns
    (tmp_path / "val.beton").unlink()
    expected = forecast(folder, tmp_path, RAW)
    assert expected.resumed_images == 37
    # which is not needed twice
    room = expected.bytes - (tmp_path / "train.beton").stat().st_size + 1
    convert(folder, tmp_path, RAW, silent, expected._replace(free_bytes=room))
    assert (tmp_path / "train.beton").stat().st_mtime_ns == old
    assert len(open_beton(tmp_path / "val.beton")) == 11
    (tmp_path / "val.beton").unlink()
    # another conversion: all of it
    convert(folder, tmp_path, ConvertOptions("jpg", workers=1), silent)
    assert (tmp_path / "train.beton").stat().st_mtime_ns > old


def test_another_conversion_does_not_resume_an_interrupted_one(folder, tmp_path, small_chunks):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(folder / "train", tmp_path / "a.beton", RAW, interrupt)
    assert (
        forecast(
            folder / "train", tmp_path / "a.beton", ConvertOptions("raw", seed=1, workers=1)
        ).resumed_images
        == 0
    )


CONVERT = """
import multiprocessing
import sys
from pathlib import Path
from resnet_recipes.data.convert import pool
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.convert.run import convert

pool._CHUNK = 1
if __name__ == "__main__":
    options = ConvertOptions("raw", workers=2)
    def tell(done, *_):
        workers = [child.pid for child in multiprocessing.active_children()]
        print(done, *workers, flush=True)
    convert(Path(sys.argv[1]), Path(sys.argv[2]), options, tell)
"""


@pytest.mark.slow
def test_killed_at_any_moment_it_leaves_neither_a_worker_nor_a_file_that_looks_whole(
    nursery, folder, tmp_path
):
    (tmp_path / "convert_slowly.py").write_text(CONVERT)
    target = tmp_path / "train.beton"
    process = nursery.run(tmp_path, "convert_slowly", str(folder / "train"), str(target))
    while not (said := re.search(r"^7 (\d+) (\d+)\n", process.said()[0], re.MULTILINE)):
        assert process.poll() is None, process.said()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while any(map(alive, map(int, said.groups()))):  # the test's time limit counts
        time.sleep(0.02)
    assert not target.exists()
    convert(folder / "train", target, RAW, silent)
    convert(folder / "train", tmp_path / "whole.beton", RAW, silent)
    assert target.read_bytes() == (tmp_path / "whole.beton").read_bytes()


def test_a_second_conversion_to_the_same_file_is_refused(folder, tmp_path):
    writer = beton_writer.BetonWriter(tmp_path / "train.beton", 5, converting.PAGE_SIZE, "key")
    with pytest.raises(NotReadyError, match="another conversion"):
        convert(folder / "train", tmp_path / "train.beton", RAW, silent)
    writer.close()


def test_a_full_disk_is_noticed_before_anything_is_written(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(NotReadyError, match="are needed"):
        convert(folder, tmp_path / "out", RAW, silent)
    assert not (tmp_path / "out").exists()


def test_a_disk_that_fills_up_leaves_the_old_file_as_it_was(
    folder, tmp_path, small_chunks, monkeypatch
):
    target = tmp_path / "train.beton"
    convert(folder / "train", target, ConvertOptions("jpg", workers=1), silent)
    old = target.read_bytes(), sidecar_path(target).read_bytes()
    write, limit = beton_writer._write_all, converting.PAGE_SIZE + 100_000

    def full(file, data):
        if file.tell() + len(data) > limit:
            raise OSError(28, "No space left on device")
        write(file, data)

    monkeypatch.setattr(beton_writer, "_write_all", full)
    with pytest.raises(NotReadyError, match=r"No space left on device.*kept"):
        convert(folder / "train", target, RAW, silent)
    assert (target.read_bytes(), sidecar_path(target).read_bytes()) == old
    monkeypatch.setattr(beton_writer, "_write_all", write)
    steps = []
    convert(folder / "train", target, RAW, lambda *step: steps.append(step))
    assert steps[0][0] > 4
    assert len(open_beton(target)) == 37


@pytest.fixture
def with_bad_images(folder: Path, tmp_path: Path) -> Path:
    """Eight images, of which one is truncated and one is not an image."""
    root = tmp_path / "images"
    for path in sorted((folder / "val").glob("*/*"))[:8]:
        copy = root / path.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    good = sorted(root.glob("*/*"))
    good[2].write_bytes(good[2].read_bytes()[:300])
    good[5].write_text("not an image")
    return root


def test_images_that_cannot_be_read_are_named_by_path(with_bad_images, tmp_path):
    with pytest.raises(NotReadyError) as refusal:
        convert(with_bad_images, tmp_path / "a.beton", RAW, silent)
    bad = sorted(with_bad_images.glob("*/*"))
    assert {problem.key for problem in refusal.value.problems} == {str(bad[2]), str(bad[5])}
    assert len(forecast(with_bad_images, tmp_path / "a.beton", RAW).unreadable) == 2


def test_images_that_cannot_be_read_are_left_out_and_noted_if_asked(with_bad_images, tmp_path):
    convert(
        with_bad_images,
        tmp_path / "a.beton",
        ConvertOptions("raw", on_bad_image="skip", workers=1),
        silent,
    )
    beton = open_beton(tmp_path / "a.beton")
    bad = sorted(with_bad_images.glob("*/*"))
    assert len(beton) == 6
    assert set(beton.sidecar.skipped) == {str(bad[2]), str(bad[5])}


def test_resuming_with_another_rule_for_bad_images_hides_none(
    with_bad_images, tmp_path, small_chunks
):
    def interrupt(done, total):
        raise KeyboardInterrupt

    target = tmp_path / "a.beton"
    skip = ConvertOptions("raw", shuffle=False, on_bad_image="skip", workers=1)
    with pytest.raises(KeyboardInterrupt):
        convert(with_bad_images, target, skip, interrupt)
    strict = ConvertOptions("raw", shuffle=False, workers=1)
    with pytest.raises(NotReadyError, match="was skipped") as refusal:
        convert(with_bad_images, target, strict, silent)
    bad = sorted(with_bad_images.glob("*/*"))[2]
    assert [problem.key for problem in refusal.value.problems] == [str(bad)]
    assert forecast(with_bad_images, target, skip).resumed_images == 4  # nothing is lost
    subprocess.run(refusal.value.problems[0].fix.partition("over:")[2], shell=True, check=True)
    with pytest.raises(NotReadyError, match="Truncated File Read"):
        convert(with_bad_images, target, strict, silent)


def test_whatever_lies_in_a_class_folder_becomes_a_reason_and_stops_nothing(
    with_bad_images, tmp_path
):
    folder = with_bad_images / "bee"
    shutil.copy(min(with_bad_images.glob("*/*")), os.fsencode(folder) + b"/\xff\xfe.jpg")
    (folder / "gone.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(folder / "pipe.jpg")
    Image.new("RGB", (70_000, 1)).save(folder / "long.png")
    skip = ConvertOptions("raw", None, on_bad_image="skip", workers=1)
    assert len(convert(with_bad_images, tmp_path / "a.beton", skip, silent)) == 1
    skipped = {Path(name).name for name in open_beton(tmp_path / "a.beton").sidecar.skipped}
    assert {"gone.jpg", "pipe.jpg", "long.png"} < skipped
    assert len(skipped) == 5
    said = forecast(with_bad_images, tmp_path / "b.beton", skip).unreadable
    assert any(
        "long.png: has a side of 70,000 pixels; the limit of .beton files is 65,500" in line
        for line in said
    )


def test_a_source_cut_short_after_it_was_opened_is_named_and_kills_nothing(folder, tmp_path):
    convert(folder / "val", tmp_path / "a.beton", RAW, silent)
    source = BetonSource(open_beton(tmp_path / "a.beton"))
    os.truncate(tmp_path / "a.beton", METADATA_START)
    assert encode_one(source, 0, RAW) == "the file was cut short after it was opened"


def test_a_file_that_does_not_read_back_is_not_accepted_when_repeated(
    folder, tmp_path, monkeypatch
):
    write = beton_writer._write_all
    monkeypatch.setattr(
        beton_writer,
        "_write_all",
        lambda file, data: write(file, data[:-9] + bytes(9) if len(data) > 10_000 else data),
    )
    for _ in range(2):
        with pytest.raises(TrainingError, match="reads back differently"):
            convert(folder, tmp_path, RAW, silent)
        assert not names(tmp_path)


def test_a_file_has_no_name_before_it_has_been_read_back(folder, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(converting, "_complaint", lambda path: 1 / 0)  # as if killed
        with pytest.raises(ZeroDivisionError):
            convert(folder / "val", tmp_path / "a.beton", RAW, silent)
    assert not (tmp_path / "a.beton").exists()
    convert(folder / "val", tmp_path / "a.beton", RAW, silent)
    assert names(tmp_path) == {"a.beton", "a.beton.json"}


def test_wrong_sources_targets_and_options_are_refused(folder, tmp_path):
    with pytest.raises(RecipeError, match=r"ends in \.beton"):
        convert(folder / "train", tmp_path, RAW, silent)
    with pytest.raises(RecipeError, match="write_mode"):
        forecast(folder, tmp_path, ConvertOptions("smart"))
    with pytest.raises(NotReadyError, match="nowhere: does not exist"):
        convert(tmp_path / "nowhere", tmp_path / "a.beton", RAW, silent)
    (tmp_path / "empty" / "ant").mkdir(parents=True)
    with pytest.raises(NotReadyError, match="has no images"):
        convert(tmp_path / "empty", tmp_path / "a.beton", RAW, silent)


def test_a_class_that_only_validation_has_is_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "images")
    (tmp_path / "images/val/dog").mkdir()
    with pytest.raises(NotReadyError, match="dog"):
        convert(tmp_path / "images", tmp_path / "out", RAW, silent)


#: FFCV's own reader, in a separate process: importing FFCV changes torch's thread count.
FFCV_READS = """
import sys
from ffcv.memory_managers import OSCacheManager
from ffcv.reader import Reader
reader = Reader(sys.argv[1])
pages = OSCacheManager(reader).page_to_samples
samples = sum(map(len, pages.values()))
print(sorted(reader.field_names), reader.num_samples, samples, *reader.metadata["f1"].tolist())
"""


@pytest.mark.slow
@pytest.mark.ffcv
@pytest.mark.skipif(find_spec("ffcv") is None, reason="ffcv is not installed")
def test_ffcv_itself_reads_our_files(betons, nursery, tmp_path):
    (tmp_path / "ffcv_reads.py").write_text(FFCV_READS)
    interpreted = os.environ | {"NUMBA_DISABLE_JIT": "1"}  # compiling takes seconds
    code, out, err = nursery.run(
        tmp_path, "ffcv_reads", str(betons / "train.beton"), environment=interpreted
    ).wait()
    assert code == 0, err
    labels = " ".join(map(str, open_beton(betons / "train.beton").labels.tolist()))
    assert out.strip() == f"['image', 'label'] 37 37 {labels}"
