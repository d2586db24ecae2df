"""Run SkyPilot, Kubeflow Trainer and torchx jobs locally, and check them against their schemas.

    python tools/job_check.py

Two processes act as two nodes, with the variables that the engine would set. The SkyPilot job is
stopped by SIGTERM and started again. Every run must end with exactly the weights of an
uninterrupted run. uv installs the engines' packages, each in a separate environment. Takes some
minutes on two cores.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from slurm_check import RECIPE, read_finished_steps, report_same_weights, run_command

#: Programs that read a job from stdin with the engine's code.
SKYPILOT_PROGRAM = """
import sys, yaml, jsonschema
from sky.utils import schemas
task = yaml.safe_load(sys.stdin)
jsonschema.Draft202012Validator(schemas.get_task_schema()).validate(task)
jsonschema.Draft202012Validator(schemas.get_resources_schema()).validate(task["resources"])
for mount in task.get("file_mounts", {}).values():
    jsonschema.Draft202012Validator(schemas.get_storage_schema()).validate(mount)
"""

TRAINJOB_PROGRAM = """
import sys, yaml
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob
job = yaml.safe_load(sys.stdin)
copy = TrainerV1alpha1TrainJob.from_dict(job).to_dict()
assert copy == job, f"the API has no such fields: {job} became {copy}"
"""

RENDEZVOUS_VARIABLES = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}


def generate_job(engine: str, *arguments: str) -> str:
    """Return the job for an engine."""
    return run_command("resnet-recipes", "job", "--for", engine, *RECIPE.split(), *arguments)


def validate(program: str, package: str, text: str) -> None:
    """Check a job with the code of its engine's package."""
    command = ["uv", "run", "-q", "--no-project", "--with", package, "python", "-c", program]
    subprocess.run(command, input=text, text=True, check=True)
    print(f"{package}: its schema accepts the job")


def run_on_two_nodes(
    command: list[str], variables: dict[str, str], rank: str
) -> list[subprocess.Popen]:
    """Start a command twice, as the two nodes of a job."""
    environment = os.environ | variables | {"OMP_NUM_THREADS": "1"}
    return [subprocess.Popen(command, env=environment | {rank: str(node)}) for node in range(2)]


def run_skypilot(arguments: list[str]) -> Path:
    """Run a task on two nodes, stop one node, and start both again; return its run.

    Exits if neither node reports that it was stopped.
    """
    text = generate_job("skypilot", *arguments, "nodes=2", "gpus=1", "--storage", "volume")
    validate(SKYPILOT_PROGRAM, "skypilot==0.14.1", text)
    bucket = generate_job("skypilot", *arguments, "gpus=1", "--storage", "s3://bucket/folder")
    validate(SKYPILOT_PROGRAM, "skypilot==0.14.1", bucket)
    task = yaml.safe_load(text)
    block = ["bash", "-c", task["run"].replace("/storage/", f"{Path.cwd()}/sky/")]
    variables = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1"}
    run = Path("sky/runs", task["name"])
    nodes = run_on_two_nodes(block, variables, "SKYPILOT_NODE_RANK")
    while read_finished_steps(run) < 20:
        time.sleep(0.2)
    nodes[1].send_signal(signal.SIGTERM)
    codes = [node.wait(200) for node in nodes]
    print(f"skypilot: stopped after step {read_finished_steps(run)}, exit codes {codes}")
    if 75 not in codes:
        raise SystemExit("neither node ended with 75")
    nodes = run_on_two_nodes(block, variables, "SKYPILOT_NODE_RANK")
    print(f"skypilot: started again, exit codes {[node.wait(600) for node in nodes]}")
    return run


def run_trainjob(arguments: list[str]) -> Path:
    """Run the command of a TrainJob on two nodes, and return its run."""
    text = generate_job("kubernetes", *arguments, "nodes=2", "gpus=1", "--storage", "claim")
    validate(TRAINJOB_PROGRAM, "kubeflow-trainer-api==2.3.0", text)
    document = yaml.safe_load(text)
    command = document["spec"]["trainer"]["command"]
    command = [argument.replace("/storage/", f"{Path.cwd()}/k8s/") for argument in command]
    variables = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1"}
    variables |= {f"PET_{name}": value for name, value in RENDEZVOUS_VARIABLES.items()}
    nodes = run_on_two_nodes(command, variables, "PET_NODE_RANK")
    print(f"kubernetes: exit codes {[node.wait(600) for node in nodes]}")
    return Path("k8s/runs", document["metadata"]["name"])


def run_torchx(arguments: list[str]) -> Path:
    """Run a torchx component with two ranks, and return its run."""
    Path("component.py").write_text(generate_job("torchx", *arguments, "gpus=2"))
    command = ["uv", "tool", "run", "-q", "--from", "torchx==0.7.0", "torchx", "run", "--wait"]
    command += ["-s", "local_cwd", "component.py:train"]
    subprocess.run(command, check=True)
    return next(Path("runs").glob("mild-*"))


def main() -> int:
    """Return 0 if every run has the weights of an uninterrupted run."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    arguments = ["max_duration=100ba"]
    folder = Path(tempfile.mkdtemp(prefix="jobs-"))
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.chdir(folder)
    run_command("resnet-train", *RECIPE.split(), *arguments, "gpus=2", "run=uninterrupted")
    runs = [start(arguments) for start in (run_skypilot, run_trainjob, run_torchx)]
    same = [report_same_weights(Path("runs/uninterrupted"), run) for run in runs]
    if all(same):
        shutil.rmtree(folder)
    return not all(same)


if __name__ == "__main__":
    sys.exit(main())
