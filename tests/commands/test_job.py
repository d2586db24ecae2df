"""`resnet-recipes job` checks its settings and prints a job; `slurm` is an abbreviation."""

import re

import pytest

from tests.plans import TINY


def test_job_script_repeats_the_arguments(enter):
    out = enter("resnet-recipes slurm hot data=/data nodes=2 gpus=4 lr=1.5 --time 4:00:00").out
    assert 'resnet-train --resume auto recipe=hot data=/data lr=1.5 "run.name=$run" &' in out
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n" in out
    assert "#SBATCH --time=4:00:00\n" in out


def test_job_warns_if_the_images_here_are_too_few(images, enter):
    streams = enter(f"resnet-recipes slurm mild data={images}")
    assert "so an epoch has no steps" in streams.err
    assert "resnet-train --resume auto recipe=mild" in streams.out


def test_job_of_a_small_batch_requests_one_gpu(enter):
    words = "data=/set model.weights=torchvision"
    script = enter(f"resnet-recipes job --for slurm finetune {words}").out
    assert "#SBATCH --gpus-per-node=1\n" in script
    script = enter(f"resnet-recipes job --for slurm finetune {words} bs=64").out
    assert "#SBATCH --gpus-per-node=8\n" in script


def test_job_array_has_runs_of_the_sweep(enter):
    words = f"{TINY} seed=1,2 ssr=1,2"
    text = enter(f"resnet-recipes slurm -m mild,hot {words} --parallel 3").out
    output = enter(f"resnet-train -m recipe=mild,hot {words} --dry-run").out
    names = re.findall("^  ([a-z]+-seed[^ ]+)", output, re.MULTILINE)
    assert re.findall(r"run.name=([^)]+)\) ;;", text) == names
    assert len(names) == 8
    assert "#SBATCH --array=0-7%3\n" in text
    assert "arguments=(recipe=hot data.backend=synthetic" in text
    assert 'resnet-train --resume auto "${arguments[@]}" gpus=1 &' in text


def test_job_array_trains_a_shared_stable_phase_once(enter):
    changes = "schedule=wsd '~methods.progressive_resizing' epochs=60,30,90"
    text = enter(f"resnet-recipes slurm -m mild data=/elsewhere {changes}").out
    names = re.findall(r"(?:run.extends=mild-epochs(\d+)-\w+ )?run.name=mild-epochs(\d+)-", text)
    assert names == [("30", "60"), ("", "30"), ("60", "90")]


@pytest.mark.parametrize("engine", ["skypilot", "kubernetes", "torchx"])
def test_job_restarts_use_the_same_run_name(engine, enter):
    storage = "" if engine == "torchx" else "--storage mine"
    line = f"resnet-recipes job --for {engine} mild data=/storage/set {storage}"
    names = []
    for change in ("seed=1", "seed=1", "seed=2"):
        output = enter(f"{line} {change}").out
        names += [set(re.findall(r"run\.name=(mild-[0-9a-f]{8})\b", output))]
    assert names[0] == names[1] != names[2]
    assert len(names[0]) == 1


def test_job_rejects_recipe_missing_on_the_cluster(tmp_path, enter):
    local_recipe = tmp_path / "own.yaml"
    local_recipe.write_text("defaults: [mild]\n")
    line = f"resnet-recipes job {local_recipe} data=/set --storage s3://bucket --for skypilot"
    assert "is a file on this machine" in enter(line, 2).err


def test_job_installs_what_its_networks_need(enter, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "")
    words = "mild data=/storage/set --storage mine model.weights=timm:resnet50"
    text = enter(f"resnet-recipes job --for skypilot {words}").out
    assert ".[timm]" in text
    words = "mild data=/storage/set --storage mine methods.distill.teacher=hf:me/net"
    streams = enter(f"resnet-recipes job --for skypilot {words}")
    assert ".[hub]" in streams.out
    assert "logs in with HF_TOKEN: not set here" in streams.err
