"""`resnet-train`: the plan, the folder of a run, and what is rejected before it starts."""

import json
import os
import socket
from pathlib import Path

import pytest

from resnet_recipes import cuda
from resnet_recipes.jobs.ranks import external_launcher
from resnet_recipes.jobs.ranks.heartbeat import Beat
from resnet_recipes.recipe.frozen_recipe import read
from resnet_recipes.run_folder.ending import Ending
from tests.shared.images import create_random_images
from tests.shared.plans import TINY
from tests.shared.run_folders import release_and_record


@pytest.fixture
def torchrun_folders(run_folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    trained: list[Path] = []
    monkeypatch.setattr(
        "resnet_recipes.jobs.ranks.rank.run_rank",
        lambda held, *_: release_and_record(held, trained),
    )
    return trained


def test_run_folder_documents_the_run(run_folders, run_command):
    out, err = run_command(f"resnet-train mild {TINY} seed=5", 75)
    (folder,) = run_folders
    assert folder.parent == Path("runs").absolute()
    assert folder.name.startswith("mild-")
    files = "config.yaml data.json command.txt overrides.txt plan.txt provenance.json env.json lock"
    assert {path.name for path in folder.iterdir()} == {*files.split()}
    assert read(folder / "config.yaml").seed == 5
    assert "seed=5\n" in (folder / "overrides.txt").read_text()
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["origin"] == "packaged"
    assert all(len(digest) == 64 for digest in provenance["files"].values())
    assert json.loads((folder / "env.json").read_text())["packages"]["torch"]
    assert out == ""
    assert str(folder) in err.replace("\n             ", "")
    run_command(f"resnet-train mild {TINY} seed=5", 75)
    assert run_folders[1] != folder


def test_verbose_flag_is_passed_to_the_launcher(monkeypatch, run_command):
    passed = []

    def start(held, group, say, shows_all_times):
        held.__exit__()
        passed.append(shows_all_times)
        return Ending(75)

    monkeypatch.setattr("resnet_recipes.jobs.ranks.launcher.start", start)
    for flag in ("", "--verbose"):
        run_command(f"resnet-train mild {TINY} {flag}", 75)
    assert passed == [False, True]


def test_verbose_prints_complete_plan(run_folders, run_command):
    assert "\n  hooks " not in run_command(f"resnet-train mild {TINY}", 75).err
    assert "\n  hooks " in run_command(f"resnet-train mild {TINY} --verbose", 75).err


def test_demo_generates_its_images_once(run_folders, run_command, monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(
        "resnet_recipes.data.demo.write", lambda root: drawn.append(create_random_images(root))
    )
    command = "resnet-train demo launch.device=cpu bs=2 epochs=2"
    err = run_command(f"{command} gpus=x run=a", 2).err
    assert "generating" not in err
    assert "generating the demo images in data/demo" in run_command(command, 75).err
    run_command(command, 75)
    assert drawn == [tmp_path / "data/demo"]


def test_demo_is_planned_before_its_images_exist(run_command, tmp_path):
    out, _ = run_command("resnet-train demo --dry-run")
    assert "3,120 for training, 540 for evaluation" in out
    assert "the run generates them" in out
    message = run_command("resnet-train demo max_duration=5ba", 2).err
    assert message.startswith(
        "error: schedule.warmup=1ep must be shorter than the run: it takes 97"
    )
    assert not (tmp_path / "data").exists()


def test_dry_run_without_plan_only_checks(run_command):
    command = "resnet-train demo --dry-run --no-plan"
    out = run_command(command).out
    assert out.startswith("the settings are valid\n")
    assert "cannot start" not in out
    assert run_command(f"{command} epochs=1", 2).err.startswith("error: schedule.warmup=1ep")


def test_dry_run_without_plan_prints_missing_weights(run_command, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(cuda, "find_gpus", cuda.VisibleGpus)
    command = "resnet-train mild --dry-run --no-plan gpus=1 model.weights=torchvision"
    out = run_command(command).out
    assert out.startswith("the settings are valid\n  device     1 x GPU (this machine has no GPU)")
    assert "note       the initial weights are not on this machine\n  try " in out
    ending = "data= is missing; the initial weights are missing; launch.gpus: torch sees no GPU"
    assert f"WARNING this run cannot start: {ending}" in " ".join(out.split())
    plan = command.replace("resnet-train", "resnet-recipes plan").replace("--dry-run --no-plan", "")
    assert "cannot start" not in run_command(plan).out
    for name, value in {"SLURM_PROCID": 0, "SLURM_STEP_NUM_TASKS": 2}.items():
        monkeypatch.setenv(name, str(value))
    assert "torch sees no GPU" not in run_command(command).out


def test_dry_run_prints_plan_and_writes_nothing(run_folders, run_command, run_json, tmp_path):
    arguments = "mild gpus=8 epochs=18 optimizer=sgd ~methods.ema"
    out, err = run_command(f"resnet-train {arguments} --dry-run")
    assert err == ""
    assert "of 625 steps: 11,250 steps" in out
    assert "2,048 images per step: 8 devices x 1 micro-batch of 256" in out
    assert "changed    gpus=8  epochs=18  optimizer=sgd  ~methods.ema\n" in out
    plan, warning, _ = out.partition("  WARNING    this run cannot start: data= is missing; ")
    assert warning
    assert run_command(f"resnet-recipes plan {arguments}").out == plan
    plan = run_json("resnet-train hot --dry-run gpus=8")
    names = ("global", "ranks", "rank", "microbatches", "bn")
    assert plan["batch"] == dict(zip(names, (2048, 8, 256, 1, 256), strict=True))
    assert list(tmp_path.iterdir()) == []
    assert run_folders == []


def test_cfg_prints_a_recipe_that_composes(run_folders, run_command):
    text = run_command("resnet-train hot --cfg lr=1.5").out
    assert text.startswith("name: hot\n")
    Path("full.yaml").write_text(text)
    for flag in ("--cfg", "--cfg job", "--cfg=job"):  # Hydra spellings
        assert run_command(f"resnet-train full.yaml {flag}").out == text


def test_torchrun_rejects_a_setting_of_gpus(torchrun_folders, run_command):
    message = run_command(f"resnet-train mild {TINY}", 2).err
    assert "gpus=1 is set by torchrun (WORLD_SIZE=1)" in message


def test_torchrun_rank_0_prepares_and_trains(torchrun_folders, run_command, run_folders):
    run_command(f"resnet-train mild {TINY.removesuffix(' gpus=1')} run=mine")
    assert torchrun_folders == [Path("runs/mine").absolute()]
    assert run_folders == []


def test_restarted_torchrun_resumes_its_run(torchrun_folders, run_command, tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("defaults: [mild]\nrun: {root: shared}\n")
    beat = Beat(0, 20, 30, os.getpid(), os.getppid(), "train", socket.gethostname())
    monkeypatch.setattr("resnet_recipes.jobs.ranks.heartbeat.read_beats", lambda folder: [beat])
    for restarts in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        run_command(f"resnet-train mine.yaml {TINY.removesuffix(' gpus=1')}")
    assert torchrun_folders[0] == torchrun_folders[1]
    assert torchrun_folders[0].parent == tmp_path / "shared"


def test_plan_starts_with_images_device_and_cpu_time(run_folders, run_command, monkeypatch):
    monkeypatch.setattr(cuda, "find_gpus", cuda.VisibleGpus)
    lines = run_command("resnet-train mild --dry-run").out.splitlines()
    assert lines[2].startswith("  images     ImageNet-1k: 1,281,167 for training")
    assert lines[4:6] == [
        "  device     CPU with 2 cores, fp32",
        "  time       about 14 weeks with evaluations, without startup: a guess from the",
    ]
    monkeypatch.setattr("resnet_recipes.commands.plan.is_emulated", lambda dtype: dtype == "bf16")
    output = run_command("resnet-train mild --dry-run precision.dtype=bf16").out
    assert "no instructions for bf16" in output
    output = " ".join(run_command("resnet-train mild --dry-run gpus=8").out.split())
    assert "8 x GPU (this machine has no GPU), bf16 if the GPU supports it, else fp16" in output
    with monkeypatch.context() as torchrun:
        torchrun.setattr(external_launcher, "count_started_ranks", lambda: 8)
        assert (
            "device     CPU with 2 cores" in run_command("resnet-train mild --dry-run gpus=8").out
        )
    monkeypatch.setattr(cuda, "find_gpus", lambda: cuda.VisibleGpus(8, "NVIDIA A100", "bf16"))
    lines = run_command("resnet-train mild --dry-run").out.splitlines()
    assert "  device     8 x NVIDIA A100, bf16" in lines


def test_no_plan_flag_hides_the_plan(run_folders, run_command):
    assert "recipe  " in run_command(f"resnet-train recipe=mild {TINY} run=a", 75).err
    assert "recipe  " not in run_command(f"resnet-train recipe=mild {TINY} run=b --no-plan", 75).err
