"""`resnet-recipes job` checks its settings and prints a job; `slurm` is an abbreviation."""

import re
from pathlib import Path

import pytest

from tests.shared.checks import check_text
from tests.shared.plans import TINY
from tests.shared.tables import parse_rows


@pytest.mark.parametrize(
    "row",
    parse_rows(
        """
slurm hot data=/data nodes=2 gpus=4 lr=1.5 --time 4:00:00 | #SBATCH --time=4:00:00 | \
#SBATCH --nodes=2 | #SBATCH --ntasks-per-node=4 | \
resnet-train --resume auto recipe=hot data=/data lr=1.5 "run.name=$run" &
slurm mild data=images | so an epoch has no steps | resnet-train --resume auto recipe=mild | \
!does not have
slurm finetune data=nowhere | data=nowhere does not exist: the job looks in the folder | \
model.weights=torchvision is not on this machine
slurm mild data=/nowhere/else | data=/nowhere/else does not exist | !the job looks
kubernetes mild --storage claim data=/data/imagenet | use:   data=/storage/imagenet | \
data=/data/imagenet is not mounted: the job mounts only /storage
skypilot mild --storage s3://mine data=/data/imagenet | use:   data=/storage/imagenet | \
data=/data/imagenet is not mounted: the job mounts only /storage
kubernetes mild --storage claim data=/storage/imagenet | !not mounted
skypilot mild --storage s3://mine data=s3://mine/imagenet | !not mounted
slurm mild data=/set --time 24 | #SBATCH --time=24 | 24 minutes; in hours: --time 24:00:00
slurm mild data=/set gpus=1 | #SBATCH --cpus-per-task=8 | !--exclusive
slurm mild data=/set gpus=1 nodes=2 | #SBATCH --exclusive | !--cpus-per-task
slurm mild data=/set gpus=1 launch.device=cpu | #SBATCH --exclusive
slurm finetune data=/set model.weights=torchvision | #SBATCH --gpus-per-node=1
slurm finetune data=/set model.weights=torchvision bs=64 | #SBATCH --gpus-per-node=8
skypilot mild data=/storage/set --storage mine model.weights=timm:resnet50 | .[timm]
skypilot mild data=/storage/set --storage mine methods.distill.teacher=hf:me/net | .[hub] | \
note: the job logs in with HF_TOKEN: not set here
slurm mild data=/set budget=90m | #SBATCH --time=1:45:00 | budget=90m
slurm -m mild data=/set budget=1h,2h | #SBATCH --time=2:15:00
"""
    ),
)
def test_job_contains_settings_and_prints_notes(row, image_folder, monkeypatch, run_command):
    monkeypatch.setenv("TORCH_HOME", "nowhere")
    monkeypatch.setenv("HF_TOKEN", "")
    Path("images").symlink_to(image_folder)
    arguments, *parts = row
    check_text("".join(run_command(f"resnet-recipes job --for {arguments}")), parts)


def test_job_array_has_runs_of_the_sweep(run_command):
    arguments = f"{TINY} seed=1,2 ssr=1,2"
    text = run_command(f"resnet-recipes job --for slurm -m mild,hot {arguments} --parallel 3").out
    output = run_command(f"resnet-train -m recipe=mild,hot {arguments} --dry-run").out
    names = re.findall("^  ([a-z]+-seed[^ ]+)", output, re.MULTILINE)
    assert re.findall(r"run.name=([^)]+)\) ;;", text) == names
    assert len(names) == 8
    assert "#SBATCH --array=0-7%3\n" in text
    assert "arguments=(recipe=hot data.backend=synthetic" in text
    assert 'resnet-train --resume auto "${arguments[@]}" gpus=1 &' in text


def test_job_array_trains_a_shared_stable_phase_once(run_command):
    changes = "schedule=wsd '~methods.progressive_resizing' epochs=60,30,90"
    text = run_command(f"resnet-recipes job --for slurm -m mild data=/elsewhere {changes}").out
    names = re.findall(r"(?:run.extends=mild-epochs(\d+)-\w+ )?run.name=mild-epochs(\d+)-", text)
    assert names == [("30", "60"), ("", "30"), ("60", "90")]


@pytest.mark.parametrize("engine", ["skypilot", "kubernetes", "torchx"])
def test_job_restarts_use_the_same_run_name(engine, run_command):
    storage = "" if engine == "torchx" else "--storage mine"
    line = f"resnet-recipes job --for {engine} mild data=/storage/set {storage}"
    names = []
    for change in ("seed=1", "seed=1", "seed=2"):
        output = run_command(f"{line} {change}").out
        names += [set(re.findall(r"run\.name=(mild-[0-9a-f]{8})\b", output))]
    assert names[0] == names[1] != names[2]
    assert len(names[0]) == 1
