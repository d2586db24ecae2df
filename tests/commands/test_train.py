import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from resnet_recipes import cli
from resnet_recipes.commands import train
from resnet_recipes.jobs.rank import VERBOSE
from resnet_recipes.jobs.watchdog import Beat
from resnet_recipes.recipe.frozen import read

SMALL = [
    "data.backend=synthetic",
    "data.train_size=32",
    "data.eval_resize=36",
    "data.eval_size=32",
    "bs=16",
    "batch.bn_size=16",
    "lr=0.05",
    "model.name=resnet18",
    "schedule.warmup=1ba",
    "max_duration=4ba",
    "ssr=1",
    "launch.device=cpu",
    "gpus=1",
]


def test_a_run_gets_a_folder_that_says_all_about_it(started, capsys):
    assert cli.train(["recipe=mild", *SMALL, "seed=5"]) == 75
    (folder,) = started
    assert folder.parent == Path("runs").absolute()
    assert folder.name.startswith("mild-")
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "config.yaml",
        "data.json",
        "command.txt",
        "overrides.txt",
        "plan.txt",
        "provenance.json",
        "env.json",
    }
    assert read(folder / "config.yaml").seed == 5
    assert "seed=5\n" in (folder / "overrides.txt").read_text()
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["origin"] == "packaged"
    assert all(len(digest) == 64 for digest in provenance["files"].values())
    assert json.loads((folder / "env.json").read_text())["packages"]["torch"]
    out, err = capsys.readouterr()
    assert out == ""
    assert str(folder) in err.replace("\n             ", "")


def test_verbose_prints_the_whole_plan_and_reaches_the_ranks(started, monkeypatch, capsys):
    monkeypatch.setenv(VERBOSE, "")
    monkeypatch.delenv(VERBOSE)
    cli.train(["recipe=mild", *SMALL])
    assert "\n  hooks " not in capsys.readouterr().err
    assert VERBOSE not in os.environ
    cli.train(["recipe=mild", *SMALL, "--verbose"])
    assert "\n  hooks " in capsys.readouterr().err
    assert os.environ[VERBOSE]


def test_what_a_start_would_refuse_a_dry_run_refuses(started, capsys):
    Path("file").touch()
    for words in ([], ["--dry-run"]):
        assert cli.train(["recipe=mild", *SMALL, "run.root=file/runs", *words]) == 3
        assert "is a file" in capsys.readouterr().err
    assert not started


def test_the_demo_draws_its_images_once_and_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    drawn = []
    monkeypatch.setattr("resnet_recipes.data.demo.write", drawn.append)
    wanted = SimpleNamespace(
        recipe=SimpleNamespace(name="demo", data=SimpleNamespace(root=str(tmp_path / "data/demo")))
    )
    assert train._with_images(wanted) is wanted
    assert "drawing the demo's images in data/demo" in capsys.readouterr().err
    (tmp_path / "data" / "demo").mkdir(parents=True)
    train._with_images(wanted)
    wanted.recipe.data.root = str(tmp_path / "mine")
    train._with_images(wanted)
    assert drawn == [tmp_path / "data" / "demo"]


def test_two_runs_never_share_a_folder(started):
    for _ in range(3):
        cli.train(["recipe=mild", *SMALL])
    assert len(set(started)) == 3


def test_a_dry_run_makes_nothing(started, capsys, tmp_path):
    assert cli.train(["recipe=mild", "--dry-run", "gpus=8"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "625 steps each: 22,500 steps" in out
    assert "2,048 images a step: 8 devices x 1 micro-batch of 256" in out
    assert list(tmp_path.iterdir()) == []
    assert started == []


def test_a_dry_run_can_be_read_by_a_program(started, capsys):
    assert cli.train(["recipe=hot", "--dry-run", "--json", "gpus=8"]) == 0
    assert json.loads(capsys.readouterr().out)["batch"] == {
        "global": 2048,
        "ranks": 8,
        "rank": 256,
        "microbatches": 1,
        "bn": 256,
    }


def test_a_plan_by_verb_is_the_same(started, capsys):
    cli.train(["recipe=mild", "--dry-run", "gpus=8"])
    by_flag = capsys.readouterr().out
    cli.main(["plan", "mild", "gpus=8"])
    assert capsys.readouterr().out == by_flag


def test_a_plan_repeats_what_was_typed(started, capsys):
    cli.train(["recipe=mild", "--dry-run", "epochs=18", "optimizer=sgd", "~methods.ema"])
    assert "changed    epochs=18  optimizer=sgd  ~methods.ema\n" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--cfg", "job"], ["--cfg=job"]])
def test_cfg_is_understood_as_hydra_spells_it(words, started, capsys):
    assert cli.train(["recipe=hot", "--cfg"]) == 0
    ours = capsys.readouterr().out
    assert cli.train(["recipe=hot", *words]) == 0
    assert capsys.readouterr().out == ours


def test_cfg_prints_a_recipe_that_can_be_read_again(started, capsys, tmp_path):
    assert cli.train(["recipe=hot", "--cfg", "lr=1.5"]) == 0
    path = tmp_path / "full.yaml"
    path.write_text(capsys.readouterr().out)
    assert cli.train([f"recipe={path}", "--cfg"]) == 0
    assert capsys.readouterr().out == path.read_text()


def test_under_torchrun_the_number_of_processes_is_not_a_setting(started, capsys, monkeypatch):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    assert cli.train(["recipe=mild", *SMALL]) == 2
    assert "gpus=1: is set by torchrun (WORLD_SIZE=1)" in capsys.readouterr().err


def test_under_torchrun_rank_0_prepares_the_run_and_trains(started, monkeypatch):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    trained = []
    monkeypatch.setattr(
        "resnet_recipes.jobs.rank.run_rank", lambda folder, work: trained.append(folder)
    )
    assert cli.train(["recipe=mild", *SMALL[:-1], "run=mine"]) == 0
    assert trained == [Path("runs/mine").absolute()]
    assert started == []


def test_a_restarted_torchrun_continues_a_run_whose_folder_its_recipe_names(
    started, tmp_path, monkeypatch
):
    (tmp_path / "mine.yaml").write_text("defaults: [mild]\nrun: {root: shared}\n")
    torchrun = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    for name, value in torchrun.items():
        monkeypatch.setenv(name, value)
    trained = []
    monkeypatch.setattr(
        "resnet_recipes.jobs.rank.run_rank", lambda folder, work: trained.append(folder)
    )
    beat = Beat(0, 20, 30, os.getpid(), os.getppid(), "train", socket.gethostname())
    monkeypatch.setattr("resnet_recipes.jobs.watchdog.beats", lambda folder: [beat])
    for restarts in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        assert cli.train(["recipe=mine.yaml", *SMALL[:-1]]) == 0
    assert trained[0] == trained[1]
    assert trained[0].parent == tmp_path / "shared"


def test_a_users_recipe_is_named_in_the_plan(started, capsys, tmp_path):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mild.yaml").write_text("defaults: [mild]\n")
    cli.train(["recipe=mild", "--dry-run"])
    said = " ".join(capsys.readouterr().out.split())
    assert "mild, recipes/mild.yaml, hides the packaged recipe of the same name" in said


def test_the_plan_opens_with_images_and_device_and_says_how_long_a_cpu_needs(
    started, capsys, monkeypatch
):
    monkeypatch.setattr("resnet_recipes.jobs.gpus.count", lambda: 0)
    monkeypatch.setattr("resnet_recipes.base.cores.cores", lambda: 2)
    cli.train(["recipe=mild", "--dry-run"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("  images     ImageNet-1k: 1,281,167 to train on")
    assert lines[4:6] == [
        "  device     CPU with 2 cores, fp32",
        "  time       roughly 14 weeks: a guess from the network's arithmetic on this",
    ]
    monkeypatch.setattr("resnet_recipes.commands.plan.emulates", lambda dtype: dtype == "bf16")
    cli.train(["recipe=mild", "--dry-run", "precision.dtype=bf16"])
    assert "no instructions for bf16" in capsys.readouterr().out
    cli.train(["recipe=mild", "--dry-run", "gpus=8"])
    said = " ".join(capsys.readouterr().out.split())
    assert "8 x GPU, of which this machine has none, bf16 if the GPU supports it, else fp16" in said
    monkeypatch.setattr("resnet_recipes.jobs.gpus.count", lambda: 8)
    monkeypatch.setattr("resnet_recipes.jobs.gpus.first", lambda: ("NVIDIA A100", "bf16"))
    cli.train(["recipe=mild", "--dry-run"])
    assert "  device     8 x NVIDIA A100, bf16" in capsys.readouterr().out.splitlines()
