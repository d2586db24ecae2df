"""A conversion predicts its cost, survives interruptions, and preserves its input."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from resnet_recipes.base.errors import NotReadyError, RecipeError, TrainingError
from resnet_recipes.base.text import do_nothing
from resnet_recipes.data import convert as convert_module
from resnet_recipes.data.beton import METADATA_START, open_beton
from resnet_recipes.data.beton import writer as beton_writer
from resnet_recipes.data.beton.sidecar import get_sidecar_path
from resnet_recipes.data.convert import convert, forecast
from resnet_recipes.data.convert.encode import ConvertOptions, OriginalImages
from tests.data.loaders import CLASSES, RAW, SMALL_PAGE, read_samples
from tests.shared.checks import get_error
from tests.shared.forks import is_alive

pytestmark = pytest.mark.usefixtures("small_pages")


def list_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write to the disk after every four images."""
    monkeypatch.setattr(convert_module, "_CHUNK_IMAGES", 4)


def convert_interrupted(
    source: Path, target: Path, options: ConvertOptions = RAW, after: int = 1
) -> None:
    """Convert, and stop after this number of images."""

    def interrupt(done: int, _: int) -> None:
        if done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, target, options, interrupt)


def convert_to_first_step(source: Path, target: Path) -> int:
    """Convert; return the number of converted images at the first progress report."""
    steps: list[int] = []
    convert(source, target, RAW, lambda done, _: steps.append(done))
    return steps[0]


def test_convert_keeps_images_labels_and_options(image_folder, tmp_path):
    paths = convert(image_folder, tmp_path, RAW, do_nothing)
    assert paths == [tmp_path / "train.beton", tmp_path / "val.beton"]
    for split in ("train", "val"):
        expected = [
            (label, Image.open(path).tobytes())
            for label, name in enumerate(CLASSES)
            for path in (image_folder / split / name).iterdir()
        ]
        assert read_samples(tmp_path / f"{split}.beton") == sorted(expected)
    assert list_names(tmp_path) == {
        "train.beton",
        "train.beton.json",
        "val.beton",
        "val.beton.json",
    }
    note = json.loads(get_sidecar_path(tmp_path / "train.beton").read_text())
    assert (tuple(note["classes"]), note["examples"]) == (CLASSES, 37)
    assert (note["source"], note["options"]["write_mode"]) == (str(image_folder), "raw")
    assert len(note["source_sha256"]) == 32


def test_convert_shuffles_by_seed_unless_disabled(image_folder, tmp_path):
    labels = []
    for change in ({}, {"seed": 1}, {"shuffle": False}):
        path = tmp_path / f"{len(labels)}.beton"
        convert(
            image_folder / "train", path, ConvertOptions("raw", workers=1, **change), do_nothing
        )
        labels.append(open_beton(path).labels.tolist())
    assert labels[0] != labels[1]
    assert sorted(labels[0]) == sorted(labels[1]) == labels[2]


@pytest.mark.parametrize("max_resolution", [500, None])
def test_forecast_is_close_and_writes_nothing(max_resolution, image_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(convert_module, "LARGE_PAGE_SIZE", 8 * SMALL_PAGE)
    options = replace(RAW, max_resolution=max_resolution)
    prediction = forecast(image_folder, tmp_path, options)
    assert (
        prediction.images,
        prediction.sampled_images,
        prediction.resumed_images,
        prediction.unreadable,
    ) == (48, 48, 0, ())
    assert not list_names(tmp_path)
    convert(image_folder, tmp_path, options, do_nothing, prediction)
    written = sum(path.stat().st_size for path in tmp_path.glob("*.beton"))
    assert abs(prediction.bytes / written - 1) < 0.05
    assert 0 < prediction.minutes < 1


def test_beton_converts_to_another_size(betons, tmp_path):
    options = ConvertOptions("raw", max_resolution=32, shuffle=False, workers=1)
    convert(betons, tmp_path, options, do_nothing)
    old = open_beton(betons / "train.beton")
    new = open_beton(tmp_path / "train.beton")
    assert new.sizes.max() == 32
    assert (new.classes, new.labels.tolist()) == (old.classes, old.labels.tolist())


def test_interrupted_conversion_resumes_bit_identically(image_folder, tmp_path, small_chunks):
    source = image_folder / "train"
    whole = tmp_path / "whole.beton"
    target = tmp_path / "train.beton"
    convert(source, whole, RAW, do_nothing)
    convert_interrupted(source, target, after=16)
    assert not target.exists()
    for end in ("partial", "partial.journal"):
        with (tmp_path / f"train.beton.{end}").open("ab") as file:
            file.write(b"torn")
    assert forecast(source, target, RAW).resumed_images == 16
    assert convert_to_first_step(source, target) == 20
    assert target.read_bytes() == whole.read_bytes()
    assert list_names(tmp_path) == {
        "whole.beton",
        "whole.beton.json",
        "train.beton",
        "train.beton.json",
    }


@pytest.fixture
def converted(image_folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A folder of images, and the folder of their .beton files."""
    images = shutil.copytree(image_folder, tmp_path / "images")
    convert(images, tmp_path / "out", RAW, do_nothing)
    return images, tmp_path / "out"


def test_finished_split_is_not_converted_again(converted):
    images, out = converted
    train, val = out / "train.beton", out / "val.beton"
    old = train.stat().st_mtime_ns
    val.unlink()
    expected = forecast(images, out, RAW)
    assert expected.resumed_images == 37
    free = expected.bytes - train.stat().st_size + 1  # existing bytes are not needed twice
    convert(images, out, RAW, do_nothing, expected._replace(free_bytes=free))
    assert train.stat().st_mtime_ns == old
    assert len(open_beton(val)) == 11


def test_convert_overwrites_no_finished_file(converted):
    images, out = converted
    train, val = out / "train.beton", out / "val.beton"
    old = train.stat().st_mtime_ns
    assert convert(images, out, RAW, do_nothing) == [train, val]
    assert train.stat().st_mtime_ns == old
    other = ConvertOptions("jpg", workers=1)

    def check_rejected(options: ConvertOptions) -> None:
        with pytest.raises(RecipeError, match=r"out` already exists.*\n.*out2"):
            convert(images, out, options, do_nothing)

    check_rejected(other)
    val.unlink()
    check_rejected(other)
    path = next((images / "train").glob("*/*"))
    path.write_bytes(path.read_bytes() + b" ")
    check_rejected(RAW)
    assert len(open_beton(train)) == 37


def test_convert_rejects_resume_with_other_options_or_source(image_folder, tmp_path, small_chunks):
    source = tmp_path / "train"
    target = tmp_path / "a.beton"
    shutil.copytree(image_folder / "train", source)
    convert_interrupted(source, target, after=16)
    assert forecast(source, target, ConvertOptions("raw", seed=1)).resumed_images == 0
    assert forecast(source, target, RAW).resumed_images == 16
    path = next(source.glob("*/*"))
    path.write_bytes(path.read_bytes() + b" ")
    assert forecast(source, target, RAW).resumed_images == 0


CONVERT = f"""
import multiprocessing
import sys
from dataclasses import replace
from pathlib import Path
from resnet_recipes.data import convert as convert_module
from resnet_recipes.data.convert.encode import ConvertOptions

convert_module._CHUNK_IMAGES, convert_module.PAGE_SIZE = 1, {SMALL_PAGE}
if __name__ == "__main__":
    def tell(done, *_):
        workers = [child.pid for child in multiprocessing.active_children()]
        print(done, *workers, flush=True)
    source, target = map(Path, sys.argv[1:])
    convert_module.convert(source, target, ConvertOptions("raw", workers=2), tell)
"""


FAIL = f"""
import os
import sys
from pathlib import Path
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data import convert as convert_module
from resnet_recipes.data.convert.encode import ConvertOptions

convert_module._CHUNK_IMAGES, convert_module.PAGE_SIZE = 1, {SMALL_PAGE}
try:
    source, target = map(Path, sys.argv[1:])
    options = ConvertOptions("raw", workers=2)
    expected = convert_module.forecast(source, target, options)._replace(unreadable=())
    convert_module.convert(source, target, options, print, expected)
except NotReadyError as error:
    print(error, flush=True)
    os._exit(3)
"""


def test_failed_conversion_closes_its_workers(with_bad_images, tmp_path):
    (tmp_path / "fail.py").write_text(FAIL)
    command = [sys.executable, "fail.py", with_bad_images[0], "a.beton"]
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (failed.returncode, failed.stderr) == (3, "")
    assert with_bad_images[1][0] in failed.stdout or with_bad_images[1][1] in failed.stdout


@pytest.mark.slow
def test_killed_conversion_leaves_no_worker_or_file(forks, image_folder, tmp_path):
    (tmp_path / "convert_slowly.py").write_text(CONVERT)
    source = image_folder / "train"
    target = tmp_path / "train.beton"
    process = forks.run(tmp_path, "convert_slowly", str(source), str(target))
    while not (match := re.search(r"^7 (\d+) (\d+)\n", process.read_streams()[0], re.MULTILINE)):
        assert process.poll() is None, process.read_streams()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while any(map(is_alive, map(int, match.groups()))):  # the test has a time limit
        time.sleep(0.02)
    assert not target.exists()
    for path in (target, tmp_path / "whole.beton"):
        convert(source, path, RAW, do_nothing)
    assert target.read_bytes() == (tmp_path / "whole.beton").read_bytes()


def test_second_conversion_to_one_file_is_rejected(image_folder, tmp_path):
    writer = beton_writer.BetonWriter(tmp_path / "train.beton", 5, convert_module.PAGE_SIZE, "key")
    with pytest.raises(NotReadyError, match="another conversion"):
        convert(image_folder / "train", tmp_path / "train.beton", RAW, do_nothing)
    writer.close()


def test_convert_rejects_full_disk_before_writing(image_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(NotReadyError, match=r"has 1 kB free; about [\d.]+ MB are needed"):
        convert(image_folder, tmp_path / "out", RAW, do_nothing)
    assert not (tmp_path / "out").exists()


def test_conversion_resumes_after_the_disk_was_full(
    image_folder, tmp_path, small_chunks, monkeypatch
):
    target = tmp_path / "train.beton"
    write = beton_writer.write_all
    limit = convert_module.PAGE_SIZE + 100_000

    def fail_when_full(file, data):
        if file.tell() + len(data) > limit:
            raise OSError(28, "No space left on device")
        write(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(beton_writer, "write_all", fail_when_full)
        with pytest.raises(NotReadyError, match=r"No space left on device.*kept"):
            convert(image_folder / "train", target, RAW, do_nothing)
    assert not target.exists()
    assert convert_to_first_step(image_folder / "train", target) > 4
    assert len(open_beton(target)) == 37


@pytest.fixture
def with_bad_images(image_folder: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    """Eight images, and the paths of a truncated image and of a file that is not an image."""
    root = tmp_path / "images"
    for path in sorted((image_folder / "val").glob("*/*"))[:8]:
        copy = root / path.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    cut, text = sorted(root.glob("*/*"))[2:6:3]
    cut.write_bytes(cut.read_bytes()[:300])
    text.write_text("not an image")
    return root, [str(cut), str(text)]


def test_convert_names_or_skips_unreadable_images(with_bad_images, tmp_path):
    root, bad = with_bad_images
    target = tmp_path / "a.beton"
    expected = forecast(root, target, RAW)
    sampled = get_error(NotReadyError, convert, root, target, RAW, do_nothing, expected)
    assert f"{root} has unreadable images: 2 of 8 that were read, such as {root}" in str(sampled)
    expected = expected._replace(unreadable=())  # the sample may miss them
    error = get_error(NotReadyError, convert, root, target, RAW, do_nothing, expected)
    assert sorted(problem.key for problem in error.problems) == bad
    check = f"resnet-recipes doctor data {root}"
    problems = (*sampled.problems, *error.problems)
    assert {problem.fix for problem in problems} == {("on_bad_image=skip", check)}
    convert(root, target, ConvertOptions("raw", on_bad_image="skip", workers=1), do_nothing)
    beton = open_beton(target)
    assert (len(beton), sorted(beton.sidecar.skipped)) == (6, bad)


def test_resume_with_skip_names_earlier_bad_images(with_bad_images, tmp_path, small_chunks):
    root, bad = with_bad_images
    target = tmp_path / "a.beton"
    skip, strict = (
        ConvertOptions("raw", shuffle=False, on_bad_image=action, workers=1)
        for action in ("skip", "error")
    )
    convert_interrupted(root, target, skip)
    with pytest.raises(NotReadyError, match="was skipped") as failure:
        convert(root, target, strict, do_nothing)
    assert [problem.key for problem in failure.value.problems] == bad[:1]
    assert forecast(root, target, skip).resumed_images == 4  # nothing is lost
    subprocess.run(
        failure.value.problems[0].advice[1].partition("over:")[2], shell=True, check=True
    )
    with pytest.raises(NotReadyError, match="is damaged or incomplete"):
        convert(root, target, strict, do_nothing)


def test_special_files_in_class_folders_are_skipped(with_bad_images, tmp_path):
    root = with_bad_images[0]
    shutil.copy(min(root.glob("*/*")), os.fsencode(root / "bee") + b"/\xff\xfe.jpg")
    (root / "bee" / "gone.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(root / "bee" / "pipe.jpg")
    Image.new("RGB", (70_000, 1)).save(root / "bee" / "long.png")
    skip = ConvertOptions("raw", None, on_bad_image="skip", workers=1)
    (target,) = convert(root, tmp_path / "a.beton", skip, do_nothing)
    skipped = {Path(name).name for name in open_beton(target).sidecar.skipped}
    assert {"gone.jpg", "pipe.jpg", "long.png"} < skipped
    assert len(skipped) == 5
    notes = "\n".join(forecast(root, tmp_path / "b.beton", skip).unreadable)
    assert "long.png, which is 70,000 pixels long; .beton files allow at most 65,500" in notes


def test_source_truncated_after_open_is_named(betons, tmp_path):
    shutil.copytree(betons, tmp_path, dirs_exist_ok=True)
    source = OriginalImages.from_beton(tmp_path / "val.beton")
    os.truncate(tmp_path / "val.beton", METADATA_START)
    assert source.encode(0, RAW) == "is damaged: the file was truncated after it was opened"


def test_unverified_file_is_rejected_when_repeated(image_folder, tmp_path, monkeypatch):
    write = beton_writer.write_all

    def damaged(file, data):
        write(file, data[:-9] + bytes(9) if len(data) > 10_000 else data)

    monkeypatch.setattr(beton_writer, "write_all", damaged)
    for _ in range(2):
        with pytest.raises(TrainingError, match="was not read back"):
            convert(image_folder, tmp_path, RAW, do_nothing)
        assert not list_names(tmp_path)


def test_conversion_killed_during_verification_finishes_when_repeated(
    image_folder, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(convert_module, "_verify", lambda path: 1 / 0)  # as if killed
        with pytest.raises(ZeroDivisionError):
            convert(image_folder / "val", tmp_path / "a.beton", RAW, do_nothing)
    assert not (tmp_path / "a.beton").exists()
    convert(image_folder / "val", tmp_path / "a.beton", RAW, do_nothing)
    assert list_names(tmp_path) == {"a.beton", "a.beton.json"}


def test_convert_writes_to_an_empty_mount_point(image_folder, tmp_path):
    (tmp_path / "out/lost+found").mkdir(parents=True)
    assert len(convert(image_folder, tmp_path / "out", RAW, do_nothing)) == 2
    (tmp_path / "photos/mine").mkdir(parents=True)
    with pytest.raises(RecipeError, match="already exists"):
        convert(image_folder, tmp_path / "photos", RAW, do_nothing)


def test_convert_keeps_file_of_another_source(image_folder, tmp_path):
    target = tmp_path / "a.beton"
    convert(image_folder / "val", target, RAW, do_nothing)
    wrong = (image_folder / "train", target), (target, target), (image_folder, tmp_path / "b.beton")
    for source, path in wrong:
        with pytest.raises(
            RecipeError, match=r"overwritten\n    .*a2\.beton|but the output is a folder"
        ):
            convert(source, path, RAW, do_nothing)
    target.write_text("mine")
    with pytest.raises(RecipeError, match="already exists, and nothing is overwritten"):
        convert(image_folder / "val", target, RAW, do_nothing)
    assert target.read_text() == "mine"
    convert(image_folder / "train", tmp_path / "b.half.beton", RAW, do_nothing)
    with pytest.raises(RecipeError, match=r"b\.half\.beton.*already exists"):
        convert(image_folder / "val", tmp_path / "b.beton", replace(RAW, levels=2), do_nothing)


def test_convert_rejects_wrong_sources_targets_and_options(image_folder, tmp_path):
    (tmp_path / "empty" / "ant").mkdir(parents=True)
    shutil.copytree(image_folder, tmp_path / "images")
    (tmp_path / "images/val/dog").mkdir()
    target = tmp_path / "a.beton"
    for source, path, options, kind, message in (
        (image_folder / "train", tmp_path, RAW, RecipeError, r"ends in \.beton"),
        (image_folder, tmp_path, ConvertOptions("smart"), RecipeError, "write_mode"),
        (tmp_path / "nowhere", target, RAW, NotReadyError, "nowhere` does not exist"),
        (tmp_path / "empty", target, RAW, NotReadyError, "has no images"),
        (tmp_path / "images", tmp_path, RAW, NotReadyError, "dog"),
    ):
        with pytest.raises(kind, match=message):
            convert(source, path, options, do_nothing)
