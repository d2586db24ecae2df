"""Jobs for SkyPilot, Kubernetes and torchx, with stand-ins for the programs that they start."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

from resnet_recipes.jobs.engines import Allocation, Job, kubernetes, skypilot, torchx
from tests.jobs.engines.strange_names import STRANGE_NAMES

ONE = Allocation(1, 4)
TWO = Allocation(2, 8)
ARGUMENTS = [
    "recipe=mild",
    *(f"data=/{name}" for name in STRANGE_NAMES),
    "run.x=$HOME ${a} $$ $(HOME)",
]

TRAINED = [
    "resnet-train",
    "--resume",
    "auto",
    *ARGUMENTS,
    "run.name=Mild_1",
    "run.root=/storage/runs",
]

#: A command that prints its arguments, waits if requested, and ends with a given code.
STAND_IN = """#!/bin/bash
trap 'mkdir -p {run}; echo "{{\\"code\\": 75}}" > {run}/exit.json; exit 1' TERM
printf '%s\\0' "${{0##*/}}" "$@"
[ {waits} = 1 ] && for ((i = 0; i < 100; i++)); do sleep 0.1; done
exit {code}
"""


def make_job(
    allocation: Allocation, storage: str = "disk", arguments: list[str] = ARGUMENTS
) -> Job:
    """Return a job whose name has a capital letter."""
    return Job("Mild_1", arguments, allocation, storage)


def run_task_block(
    folder: Path, task: Job, code: int = 0, waits: bool = False
) -> subprocess.Popen[str]:
    for name in ("torchrun", "resnet-train"):
        text = STAND_IN.format(run=folder / "runs" / task.run, waits=int(waits), code=code)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    block = yaml.safe_load(skypilot.format_script(task))["run"].replace("/storage/", f"{folder}/")
    environment = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8",
    }
    return subprocess.Popen(
        ["bash", "-c", block], stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
    )


TRACKED = make_job(TWO)._replace(extras=["remote", "wandb"], secrets=["WANDB_API_KEY"])


def test_skypilot_passes_extras_secrets_cores_and_memory():
    text = skypilot.format_script(TRACKED)
    read = yaml.safe_load(text)
    assert read["setup"].endswith(" '.[remote,wandb]'\n")
    assert read["secrets"] == {"WANDB_API_KEY": None}
    assert (read["resources"]["cpus"], read["resources"]["memory"]) == ("64+", "512+")
    assert "sky jobs launch --secret WANDB_API_KEY mild-1.yaml" in text


def test_trainjob_passes_extras_secrets_cores_and_memory():
    text = kubernetes.format_script(TRACKED)
    trainer = yaml.safe_load(text)["spec"]["trainer"]
    assert [variable["name"] for variable in trainer["env"]] == ["WANDB_API_KEY"]
    assert trainer["resourcesPerNode"]["requests"] == {"cpu": 64, "memory": "512Gi"}
    assert "--build-arg EXTRAS=remote,wandb ." in text


def test_torchx_component_passes_secrets():
    text = torchx.format_script(TRACKED)
    assert "for name in ['WANDB_API_KEY'] if name in os.environ" in text


def test_script_without_secrets_names_none():
    plain = make_job(TWO)
    assert "secrets" not in yaml.safe_load(skypilot.format_script(plain))
    assert "env" not in yaml.safe_load(kubernetes.format_script(plain))["spec"]["trainer"]


def test_skypilot_single_node_runs_our_launcher(tmp_path):
    process = run_task_block(tmp_path, make_job(ONE), code=75)
    out, _ = process.communicate(timeout=10)
    arguments = [argument.replace("/storage", str(tmp_path)) for argument in TRAINED]
    assert out.split("\0")[:-1] == [*arguments, "gpus=4"]
    assert process.returncode == 75
    assert not list(tmp_path.rglob("OWNED"))


def test_skypilot_nodes_rendezvous_on_the_first(tmp_path):
    out, _ = run_task_block(tmp_path, make_job(TWO)).communicate(timeout=10)
    name, *arguments = out.split("\0")[:-1]
    assert name == "torchrun"
    assert arguments[: arguments.index("--no-python")] == [
        "--nnodes=2",
        "--node-rank=1",
        "--master-addr=10.0.0.7",
        "--master-port=29400",
        "--nproc-per-node=8",
        "--shutdown-timeout=150",
    ]
    trained = [argument.replace("/storage", str(tmp_path)) for argument in TRAINED]
    assert arguments[arguments.index("--no-python") + 1 :] == trained
    assert not list(tmp_path.rglob("OWNED"))


@pytest.mark.parametrize(("code", "waits"), [(1, False), (0, False), (1, True)])
def test_skypilot_node_ignores_code_of_earlier_attempt(code, waits, tmp_path):
    before = tmp_path / "runs/Mild_1"
    before.mkdir(parents=True)
    (before / "exit.json").write_text('{"code": 75}')  # an earlier attempt was stopped
    process = run_task_block(tmp_path, make_job(TWO), code, waits=waits)
    if waits:
        assert process.stdout.read(8) == "torchrun"
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == (75 if waits else code)


def test_skypilot_mounts_bucket_with_cache_and_volume():
    task = yaml.safe_load(skypilot.format_script(make_job(ONE, "s3://bucket/a b")))
    assert task["file_mounts"] == {
        "/storage": {"source": "s3://bucket/a b", "mode": "MOUNT_CACHED"}
    }
    task = yaml.safe_load(skypilot.format_script(make_job(TWO)))
    assert task["workdir"] == "."  # installed from the checkout, since no index has the package
    assert (task["volumes"], task["num_nodes"]) == ({"/storage": "disk"}, 2)
    assert task["resources"]["job_recovery"] == {"recover_on_exit_codes": [75]}
    assert task["resources"]["accelerators"] == {"A100-80GB": 8, "H100": 8}
    assert "accelerators" not in skypilot.format_script(make_job(Allocation(1, 2, is_cpu=True)))


@pytest.mark.parametrize("allocation", [ONE, TWO], ids=["one node", "two nodes"])
def test_trainjob_escapes_arguments_and_leaves_time_to_save(allocation):
    document = yaml.safe_load(kubernetes.format_script(make_job(allocation, "disk}, a: {b")))
    trainer = document["spec"]["trainer"]
    torchrun = ["torchrun", "--shutdown-timeout=150", "--no-python"]
    expected = [*torchrun, *TRAINED] if allocation == TWO else [*TRAINED, "gpus=4"]
    assert [argument.replace("$$", "$") for argument in trainer["command"]] == expected
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == allocation[:2]
    assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": allocation.ranks}
    assert document["metadata"]["name"] == "mild-1"
    replicated = document["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    pod = replicated["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 150
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "disk}, a: {b"}


def test_torchx_component_escapes_arguments(monkeypatch):
    called = {}
    dist = ModuleType("torchx.components.dist")
    specs = ModuleType("torchx.specs")
    dist.ddp = lambda *arguments, **rest: called.update(rest, arguments=list(arguments))
    specs.AppDef = SimpleNamespace
    monkeypatch.setitem(sys.modules, "torchx.components.dist", dist)
    monkeypatch.setitem(sys.modules, "torchx.specs", specs)
    component: dict = {}
    exec(torchx.format_script(make_job(TWO, storage="")), component)
    component["train"]()
    assert [argument.replace("$$", "$") for argument in called["arguments"]] == [*TRAINED[1:-1]]
    assert (called["m"], called["j"], called["gpu"]) == ("resnet_recipes", "2x8", 8)
