"""`resnet-recipes job` checks its settings and prints a job; `slurm` is an abbreviation."""

import re

import pytest

from tests.shared.plans import TINY


def test_job_script_repeats_the_arguments(run_command):
    out = run_command(
        "resnet-recipes job --for slurm hot data=/data nodes=2 gpus=4 lr=1.5 --time 4:00:00"
    ).out
    assert 'resnet-train --resume auto recipe=hot data=/data lr=1.5 "run.name=$run" &' in out
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n" in out
    assert "#SBATCH --time=4:00:00 " in out


def test_job_warns_about_too_few_local_images(image_folder, run_command):
    streams = run_command(f"resnet-recipes job --for slurm mild data={image_folder}")
    assert "so an epoch has no steps" in streams.err
    assert "resnet-train --resume auto recipe=mild" in streams.out


def test_job_notes_files_missing_on_this_machine(image_folder, monkeypatch, run_command):
    monkeypatch.setenv("TORCH_HOME", "nowhere")
    err = run_command("resnet-recipes job --for slurm finetune data=nowhere").err
    assert "data=nowhere does not exist: the job looks in the folder" in err
    assert "model.weights=torchvision is not on this machine" in err
    err = run_command("resnet-recipes job --for slurm mild data=/nowhere/else").err
    assert err.endswith("data=/nowhere/else does not exist\n")
    err = run_command(f"resnet-recipes job --for slurm mild data={image_folder}").err
    assert "does not have" not in err


@pytest.mark.parametrize(
    "job", ["kubernetes mild --storage claim", "skypilot mild --storage s3://mine"]
)
def test_job_warns_about_images_outside_its_storage(job, run_command):
    err = run_command(f"resnet-recipes job --for {job} data=/data/imagenet").err
    assert "data=/data/imagenet is not mounted: the job mounts only /storage" in err
    assert "use:   data=/storage/imagenet" in err
    for mounted in ("/storage/imagenet", "s3://mine/imagenet"):
        err = run_command(f"resnet-recipes job --for {job} data={mounted}").err
        assert "not mounted" not in err


def test_job_notes_that_a_number_alone_is_minutes(run_command):
    streams = run_command("resnet-recipes job --for slurm mild data=/set --time 24")
    assert "#SBATCH --time=24 " in streams.out
    assert "24 minutes; in hours: --time 24:00:00\n" in streams.err


def test_job_with_one_gpu_requests_part_of_node(run_command):
    script = run_command("resnet-recipes job --for slurm mild data=/set gpus=1").out
    assert "#SBATCH --cpus-per-task=8 " in script
    assert "--exclusive" not in script
    script = run_command("resnet-recipes job --for slurm mild data=/set gpus=1 nodes=2").out
    assert "--cpus-per-task" not in script
    assert "#SBATCH --exclusive " in script
    script = run_command(
        "resnet-recipes job --for slurm mild data=/set gpus=1 launch.device=cpu"
    ).out
    assert "#SBATCH --exclusive " in script


def test_job_with_small_batch_requests_one_gpu(run_command):
    arguments = "data=/set model.weights=torchvision"
    script = run_command(f"resnet-recipes job --for slurm finetune {arguments}").out
    assert "#SBATCH --gpus-per-node=1\n" in script
    script = run_command(f"resnet-recipes job --for slurm finetune {arguments} bs=64").out
    assert "#SBATCH --gpus-per-node=8\n" in script


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


def test_job_rejects_recipe_missing_on_the_cluster(tmp_path, run_command):
    local_recipe = tmp_path / "own.yaml"
    local_recipe.write_text("defaults: [mild]\n")
    line = f"resnet-recipes job {local_recipe} data=/set --storage s3://bucket --for skypilot"
    assert "is a file on this machine" in run_command(line, 2).err


def test_job_installs_packages_of_its_networks(run_command, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "")
    arguments = "mild data=/storage/set --storage mine model.weights=timm:resnet50"
    text = run_command(f"resnet-recipes job --for skypilot {arguments}").out
    assert ".[timm]" in text
    arguments = "mild data=/storage/set --storage mine methods.distill.teacher=hf:me/net"
    streams = run_command(f"resnet-recipes job --for skypilot {arguments}")
    assert ".[hub]" in streams.out
    assert "logs in with HF_TOKEN: not set here" in streams.err
