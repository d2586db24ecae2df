"""`resnet-train --check` trains the end of a run; only a failure leaves files behind."""

from pathlib import Path

import pytest
import yaml

from resnet_recipes.jobs import checks
from resnet_recipes.jobs.ranks import launcher
from resnet_recipes.run_folder.ending import Ending
from resnet_recipes.run_folder.lock import LockedFolder
from tests.shared.images import create_random_images
from tests.shared.plans import TINY


def test_check_trains_last_steps_and_deletes_them(forks, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("COLUMNS", "60")
    arguments = f"resnet_recipes mild {TINY} max_duration=6ba seed=1 --check"
    code, out, err = forks.run(tmp_path, *arguments.split()).wait(100)
    assert code == 0, err
    assert "step=4/6" in err
    assert "step=6/6" in err
    assert "eval " in err
    assert "the last 2 of 6 steps" in out
    assert max(map(len, out.splitlines())) <= 60
    assert [*tmp_path.rglob("config.yaml")] == []


@pytest.mark.parametrize("code", [0, 1, 130])
def test_check_uses_the_settings_of_the_command(code, tmp_path, monkeypatch, run_command):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tried = []

    def train(locked: LockedFolder, *_: object) -> Ending:
        folder, names = locked.path, ("config.yaml", "task.json")  # JSON is YAML
        tried.append((folder, *(yaml.safe_load((folder / name).read_text()) for name in names)))
        return Ending(code)

    monkeypatch.setattr(launcher, "start", train)
    run_command(f"resnet-train mild {TINY} run=mine log.to=[csv] --check", code)
    ((folder, recipe, sample),) = tried
    assert sample == {"task": "train", "spans": [[2, 4]]}
    assert (recipe["max_duration"], recipe["optimizer"]["lr"]) == ("4ba", 0.05)
    assert recipe["log"]["to"] == []  # trackers do not get this trial
    assert not Path("runs").exists()
    assert folder.exists() == (code == 1)  # its logs contain the reason


@pytest.fixture
def unread_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images in ./images; ranks always succeed, and would read only a few images."""
    monkeypatch.setattr(launcher, "start", lambda *_: Ending(0))
    return create_random_images(tmp_path / "images", train=3)


IMAGE_FOLDER_ARGUMENTS = TINY.replace("data.backend=synthetic", "data=images")


@pytest.mark.parametrize("split", ["train", "val"])
def test_check_reports_unreadable_images_before_training(split, unread_images, run_command):
    for name in ("pattern0/0.jpg", "pattern1/1.jpg", "pattern2/2.jpg"):
        (unread_images / split / name).write_bytes(b"no image")
    message = run_command(f"resnet-train mild {IMAGE_FOLDER_ARGUMENTS} --check", 3).err
    assert f"has unreadable images in {split}: 3, such as images/{split}/pattern" in message
    assert "try:   resnet-recipes doctor data images\n" in message
    assert ("use:   data.on_bad_image=skip\n" in message) == (split == "train")
    skipped = run_command(
        f"resnet-train mild {IMAGE_FOLDER_ARGUMENTS} data.on_bad_image=skip --check",
        3 * (split == "val"),
    )
    assert ("skipping unreadable images in train: 3" in skipped.err) == (split == "train")
    hint = "hint:  replace or delete them; data.on_bad_image=skip is for training images\n"
    assert (hint in skipped.err) == (split == "val")


def test_train_rejects_unreadable_validation_images(unread_images, run_command):
    (unread_images / "train/pattern0/1.jpg").write_bytes(b"no image")
    (unread_images / "val/pattern0/0.jpg").write_bytes(b"no image")
    message = run_command(f"resnet-train mild {IMAGE_FOLDER_ARGUMENTS}", 3).err
    assert "has unreadable images in val: 1, such as images/val/pattern0/0.jpg, which is" in message
    assert "      hint:  replace or delete them; only validation images were checked\n" in message
    swept = run_command(f"resnet-train -m mild {IMAGE_FOLDER_ARGUMENTS} lr=1,2", 3).err
    assert "has unreadable images in val: 1, such as images/val/pattern0/0.jpg, which is" in swept
    assert not Path("runs").exists()
    (unread_images / "val/pattern0/0.jpg").unlink()
    run_command(f"resnet-train mild {IMAGE_FOLDER_ARGUMENTS}")


def test_check_decodes_images_until_time_limit(unread_images, run_command, monkeypatch):
    count = len([*unread_images.glob("*/*/*.jpg")])
    message = run_command(f"resnet-train mild {IMAGE_FOLDER_ARGUMENTS} --check --no-plan").err
    assert "recipe  " not in message
    assert f"decoded {count} of {count} images\n" in message
    monkeypatch.setattr("resnet_recipes.doctor.data._BLOCK_IMAGES", 10)
    monkeypatch.setattr(checks, "DECODE_SECONDS", 1e-9)
    message = run_command(f"resnet-train mild {IMAGE_FOLDER_ARGUMENTS} --check").err
    assert f"of {count} images in 0 s; resnet-recipes doctor data" in message
