import os
import shutil
from pathlib import Path

import pytest

from resnet_recipes import cli
from resnet_recipes.jobs.resume import unfinished
from resnet_recipes.recipe.frozen import read
from resnet_recipes.run_folder.lock import locked
from tests.commands.test_train import SMALL
from tests.trained_runs import random_images

WORDS = ["recipe=mild", *SMALL]


def test_a_run_is_resumed_in_its_folder(started):
    cli.train([*WORDS, "run=mine"])
    assert cli.train(["--resume", "runs/mine"]) == 75
    assert started[0] == started[1]


def test_what_changes_no_result_may_change(started):
    cli.train([*WORDS, "run=mine"])
    assert cli.train(["--resume", "runs/mine", "workers=3", "log.interval=7ba"]) == 75
    changed = read(Path("runs/mine/config.yaml"))
    assert (changed.data.workers, changed.log.interval) == (3, "7ba")


def test_images_that_were_moved_are_named_before_any_process_starts(started, tmp_path, capsys):
    images = str(random_images(tmp_path / "images"))
    words = [word for word in WORDS if word != "data.backend=synthetic"]
    assert cli.train([*words, "bs=8", "batch.bn_size=8", f"data={images}", "run=mine"]) == 75
    (tmp_path / "images").rename(tmp_path / "photos")
    before = Path("runs/mine/config.yaml").read_bytes()
    assert cli.train(["--resume", "runs/mine"]) == 3
    said = capsys.readouterr().err
    assert f"data.root={images}: does not exist" in said
    assert "resnet-train --resume runs/mine data=/where/it/is/now" in said
    assert cli.train(["--resume", "runs/mine", f"data={tmp_path}/photo"]) == 3
    assert f"--resume runs/mine data={tmp_path}/photos" in capsys.readouterr().err
    assert Path("runs/mine/config.yaml").read_bytes() == before
    assert len(started) == 1
    assert cli.train(["--resume", "runs/mine", f"data={tmp_path}/photos"]) == 75
    assert read(Path("runs/mine/config.yaml")).data.root == str(tmp_path / "photos")


@pytest.mark.parametrize("text", ['{"job": "evaluate"}', '{"spans": "all"}', "[1]"])
def test_the_folder_of_a_measurement_is_not_resumed(text, started, capsys):
    cli.train([*WORDS, "run=mine"])
    Path("runs/mine/job.json").write_text(text)
    assert cli.train(["--resume", "runs/mine"]) == 2
    assert "which is not continued" in capsys.readouterr().err
    assert len(started) == 1


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("change", "code", "rule"),
    [
        ("data={tmp}/others", 3, "differ in name or size"),
        ("batch.bn_size=3", 2, "must divide the 8 examples of each rank"),
        ("gpus=3", 2, "must be divisible by the 3 ranks"),
        ("launch.device=cuda", 3, "torch sees no GPU on this machine"),
        ("checkpoint.keep=9999", 3, "GB free, and the run needs another"),
        ("evaluation.interval=0.001dur evaluation.offset=2dur", 2, "is longer than the run"),
    ],
)
def test_a_refused_resume_leaves_a_run_that_can_be_resumed(
    started, tmp_path, monkeypatch, capsys, change, code, rule, flags
):
    images = str(random_images(tmp_path / "images"))
    words = [word for word in WORDS if word != "data.backend=synthetic"]
    small = [*words, "bs=8", "batch.bn_size=8", "checkpoint.interval=1ba", "max_duration=9999ba"]
    assert cli.train([*small, f"data={images}", "run=mine"]) == 75
    shutil.copytree(images, tmp_path / "others")
    (tmp_path / "others" / "train" / "pattern3" / "0.jpg").write_bytes(b"")
    before = Path("runs/mine/config.yaml").read_bytes()
    asked = change.format(tmp=tmp_path).split()
    assert cli.train(["--resume", "runs/mine", *asked, *flags]) == code
    assert rule in " ".join(capsys.readouterr().err.split())
    assert Path("runs/mine/config.yaml").read_bytes() == before
    assert len(started) == 1
    assert cli.train(["--resume", "runs/mine", *flags]) == (0 if flags else 75)


def test_a_dry_run_shows_what_resuming_would_do_and_changes_nothing(started, capsys):
    cli.train([*WORDS, "run=mine"])
    before = Path("runs/mine/config.yaml").read_bytes()
    assert cli.train(["--resume", "runs/mine", "--dry-run", "workers=3"]) == 0
    assert "4 steps" in capsys.readouterr().out
    assert cli.train(["--resume", "runs/mine", "--dry-run", "lr=1"]) == 2
    assert cli.train(["--resume", "runs/other", "--dry-run"]) == 3
    assert cli.train(["--resume", "auto", "--dry-run", *WORDS]) == 0
    assert len(started) == 1
    assert Path("runs/mine/config.yaml").read_bytes() == before


def test_a_resumed_run_keeps_the_micro_batch_that_was_found_when_it_began(started, capsys):
    cli.train([*WORDS, "run=mine", "batch.bn_size=8"])
    again = [word for word in WORDS if not word.startswith("batch.bn_size")]
    assert cli.train(["--resume", "auto", *again, "run=mine", "batch.bn_size=auto"]) == 75
    assert read(Path("runs/mine/config.yaml")).batch.bn_size == 8
    assert cli.train(["--resume", "runs/mine", "batch.bn_size=auto"]) == 2
    assert "this one began with 8" in capsys.readouterr().err


def test_a_running_run_keeps_its_settings(started, capsys):
    cli.train([*WORDS, "run=mine"])
    before = Path("runs/mine/config.yaml").read_bytes()
    with locked(Path("runs/mine")):
        for words in (["workers=3"], ["--dry-run"]):
            assert cli.train(["--resume", "runs/mine", *words]) == 3
            assert "is in use by another run" in capsys.readouterr().err
    assert Path("runs/mine/config.yaml").read_bytes() == before
    assert len(started) == 1


def test_what_stopped_the_run_may_be_fixed(started):
    cli.train([*WORDS, "run=mine"])
    assert cli.train(["--resume", "runs/mine", "batch.bn_size=8", "data.on_bad_image=skip"]) == 75
    changed = read(Path("runs/mine/config.yaml"))
    assert (changed.batch.bn_size, changed.data.on_bad_image) == (8, "skip")


@pytest.mark.parametrize("words", [[], ["workers=3"]])
def test_a_run_that_began_before_a_setting_existed_is_resumed(started, words):
    cli.train([*WORDS, "run=mine"])
    config = Path("runs/mine/config.yaml")
    now = read(config)
    config.write_text(
        config.read_text().replace("  order: random\n", "").replace("  flip: false\n", "")
    )
    before = config.read_text()
    assert "order" not in before
    assert cli.train(["--resume", "runs/mine", "--dry-run", *words]) == 0
    assert config.read_text() == before
    assert cli.train(["--resume", "runs/mine", *words]) == 75
    assert read(config).data.order == now.data.order


def test_what_changes_the_result_may_not(started, capsys):
    cli.train([*WORDS, "run=mine"])
    before = Path("runs/mine/config.yaml").read_bytes()
    assert cli.train(["--resume", "runs/mine", "lr=1"]) == 2
    assert "optimizer.lr=1.0: was 0.05 when the run began" in capsys.readouterr().err
    assert Path("runs/mine/config.yaml").read_bytes() == before
    assert len(started) == 1


@pytest.mark.parametrize(
    ("words", "code"), [([], 0), (["workers=3"], 0), (["--dry-run"], 0), (["lr=1"], 2)]
)
def test_a_finished_run_is_not_started_again_and_refuses_the_same_changes(
    started, capsys, words, code
):
    cli.train([*WORDS, "run=mine"])
    Path("runs/mine/summary.json").write_text("{}")
    assert cli.train(["--resume", "runs/mine", *words]) == code
    assert ("is finished" if code == 0 else "optimizer.lr=1.0: was 0.05") in capsys.readouterr().err
    assert len(started) == 1


@pytest.mark.parametrize("word", ["recipe=hot", "run=other", "run.root=elsewhere"])
def test_the_name_of_another_run_or_recipe_is_refused(started, capsys, word):
    cli.train([*WORDS, "run=mine"])
    assert cli.train(["--resume", "runs/mine", word]) == 2
    assert (
        f"{word}: --resume chooses the run, and a run keeps its recipe" in capsys.readouterr().err
    )


def test_auto_takes_the_newest_unfinished_run(started):
    for index, name in enumerate(("old", "new", "done")):
        cli.train([*WORDS, f"run={name}"])
        os.utime(f"runs/{name}/config.yaml", (index, index))
    Path("runs/done/summary.json").write_text("{}")
    assert list(unfinished(Path("runs"))) == [Path("runs/new"), Path("runs/old")]
    assert cli.train(["--resume", "auto"]) == 75
    assert started[-1].name == "new"


def test_auto_with_a_name_starts_once_and_then_resumes(started):
    for _ in range(3):
        assert cli.train([*WORDS, "run=job17", "--resume", "auto"]) == 75
    assert [folder.name for folder in started] == ["job17"] * 3
    assert [path.name for path in Path("runs").iterdir()] == ["job17"]


def test_auto_resumes_the_newest_run_of_the_same_settings_on_whatever_machine(started):
    cli.train(WORDS)
    cli.train([*WORDS, "seed=5"])
    assert cli.train([*WORDS, "workers=3", "--resume", "auto"]) == 75
    assert started[2] == started[0]
    assert read(started[0] / "config.yaml").data.workers == 3
    assert read(started[0] / "config.yaml").run.name == "auto"


@pytest.mark.parametrize(
    ("word", "key"),
    [("lr=0.1", "optimizer.lr"), ("data.root=/elsewhere", "data.root"), ("seed=5", "seed")],
)
def test_auto_starts_a_new_run_for_other_settings_and_says_so(started, capsys, word, key):
    cli.train(WORDS)
    assert cli.train([*WORDS, word, "--resume", "auto"]) == 75
    assert started[1] != started[0]
    assert f"differs in {key}): starting a new one" in capsys.readouterr().err


def test_auto_with_the_name_of_a_run_of_other_settings_is_refused(started, capsys):
    cli.train([*WORDS, "run=job17"])
    assert cli.train([*WORDS, "lr=0.1", "run=job17", "--resume", "auto"]) == 2
    said = capsys.readouterr().err
    assert "optimizer.lr=0.1: was 0.05 when the run began" in said
    assert "run=another" in said
    assert len(started) == 1


def test_a_run_folder_with_a_link_in_it_is_not_resumed(started, capsys, tmp_path):
    cli.train([*WORDS, "run=mine"])
    (tmp_path / "precious").mkdir()
    Path("runs/mine/checkpoints").symlink_to(tmp_path / "precious")
    assert cli.train(["--resume", "runs/mine"]) == 3
    assert "runs/mine/checkpoints: is a symbolic link" in capsys.readouterr().err
    assert len(started) == 1
