"""Ranks that the user's torchrun or srun has started find out who they are, and train one run."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resnet_recipes.base.errors import ExitCode, NotReadyError
from resnet_recipes.doctor import cuda
from resnet_recipes.jobs import external
from resnet_recipes.jobs.watchdog import Beat
from resnet_recipes.run_folder.ending import read
from resnet_recipes.training import distributed
from tests.commands.conftest import TINY
from tests.jobs.nursery import Command, Nursery

#: A run of two steps, each of eight images.
SMALL = f"mild {TINY.removesuffix(' gpus=1')} bs=8 batch.bn_size=4 max_duration=2ba run=one".split()

TORCHRUN = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29400",
}
SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_ID": "41234",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_NODEID": "1",
    "SLURM_CPUS_ON_NODE": "1",
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment, without what a launcher would put there."""
    for name in [*TORCHRUN, *SRUN, "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"]:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def put(told: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        told.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "by"),
    [
        ({}, ""),
        (TORCHRUN, "torchrun"),
        (SRUN, "srun"),
        (SRUN | TORCHRUN, "torchrun"),
        # alone: it starts one process per GPU itself
        (SRUN | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, ""),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, ""),  # a batch script, outside of any step
    ],
)
def test_who_has_started_this_process(variables, by, told):
    put(told, variables)
    assert external.launcher() == by


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"RANK": "x"}, "RANK=x: must be a whole number; torchrun or srun sets it\n    unset RANK"),
        (TORCHRUN | {"WORLD_SIZE": "-2"}, "WORLD_SIZE=-2: must be a whole number"),
        (TORCHRUN | {"RANK": "2"}, "RANK=2: must be less than WORLD_SIZE=2"),
        (TORCHRUN | {"MASTER_ADDR": ""}, "MASTER_ADDR: is not set"),
        (TORCHRUN | {"MASTER_PORT": "http"}, "MASTER_PORT=http: must be a whole number"),
        ({"SLURM_STEP_NUM_TASKS": "two"}, "SLURM_STEP_NUM_TASKS=two: must be a whole number"),
        ({"LOCAL_WORLD_SIZE": "\u0663"}, "LOCAL_WORLD_SIZE=\u0663: must be a whole number"),
    ],
)
def test_what_no_launcher_can_have_set_is_refused_by_name(variables, said, told):
    put(told, variables)
    with pytest.raises(NotReadyError) as failure:
        external.launcher()
    assert said in str(failure.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SLURM_PROCID", "x", "SLURM_PROCID=x: must be a whole number"),
        ("SLURM_PROCID", "8", "SLURM_PROCID=8: must be less than SLURM_STEP_NUM_TASKS=8"),
        ("SLURM_LOCALID", "x", "SLURM_LOCALID=x: must be a whole number"),
        ("SLURM_CPUS_ON_NODE", "x", "SLURM_CPUS_ON_NODE=x: must be a whole number"),
        ("SLURM_STEP_NODELIST", None, "SLURM_STEP_NODELIST: is not set, and srun sets it"),
        ("SLURM_JOB_ID", "x", "SLURM_JOB_ID=x: must be a whole number"),
        (
            "SLURM_NODEID",
            "7",
            "SLURM_NODEID=7: is not one of the nodes in SLURM_STEP_TASKS_PER_NODE=4(x2)",
        ),
    ],
)
def test_what_srun_cannot_have_set_is_refused_by_name(name, value, said, told):
    put(told, SRUN)
    told.setenv(name, value) if value else told.delenv(name)
    with pytest.raises(NotReadyError) as failure:
        external.join([], Path)
    assert said in str(failure.value)


def test_a_port_in_use_is_a_message(told):
    distributed.meeting_place.cache_clear()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        put(told, TORCHRUN | {"RANK": "0", "MASTER_PORT": str(taken.getsockname()[1])})
        with pytest.raises(
            NotReadyError, match=r"127\.0\.0\.1:\d+: rank 0 cannot reach the others there: .*in use"
        ):
            external._meeting("command")


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_a_port_that_does_not_exist_is_a_message(address, told):
    distributed.meeting_place.cache_clear()
    put(told, TORCHRUN | {"RANK": "0", "MASTER_ADDR": address, "MASTER_PORT": "99999"})
    with pytest.raises(NotReadyError, match=f"{address}:99999: rank 0 cannot reach .* port must"):
        external._meeting("command")


def test_a_job_of_a_federation_of_clusters_has_ten_digits(told):
    assert external._variables(SRUN | {"SLURM_JOB_ID": "4026531841"})["MASTER_PORT"] == "31841"
    put(told, SRUN | {"SLURM_JOB_ID": "4026531841"})
    assert external.launcher() == "srun"


def test_gpu_memory_is_allocated_as_under_our_launcher(told):
    told.setattr(os, "environ", TORCHRUN | {"PATH": os.environ["PATH"]})
    told.setattr(cuda, "has_nvml", lambda: True)
    told.setattr(external, "_agreed", lambda *_: (None, ExitCode.DONE))
    assert external.join([], Path) == ExitCode.DONE
    assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"


def test_a_class_called_igloo_does_not_silence_the_rank_that_failed(tmp_path, told):
    (tmp_path / "behaviour").write_text("wrong@0")
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent),
        "RANK": "0",
        "WORLD_SIZE": "2",
    }
    rank = subprocess.run(
        [sys.executable, "-m", "stand_in", str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert rank.returncode == 1
    assert "rank 0 failed (TrainingError)" in rank.stderr
    assert "igloo" in rank.stderr


@pytest.mark.parametrize(
    ("behaviour", "speaks"), [("finish@0 not-ready@1", 1), ("not-ready-last@0 not-ready@1", 0)]
)
def test_what_ranks_refuse_is_said_once_by_the_lowest(behaviour, speaks, tmp_path, told):
    (tmp_path / "behaviour").write_text(behaviour)
    common = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "stand_in", str(tmp_path)]
    ranks = {}
    for rank in "01":
        ranks[rank] = subprocess.Popen(
            command, env=common | {"RANK": rank}, stderr=subprocess.PIPE, text=True
        )
        while not list(tmp_path.glob("heartbeat/*")):  # rank 1 does not refuse before rank 0 is up
            time.sleep(0.01)
    said = [ranks[rank].communicate(timeout=60)[1] for rank in "01"]
    assert ["data.root=/data: is gone" in text for text in said] == [speaks == 0, speaks == 1]
    assert ("on rank 1; log: " in said[1]) == (speaks == 1)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu7", "gpu7"), ("gpu[07-09,11],big1", "gpu07"), ("a,b", "a"), ("r[1-2]n[3-4]", "r1n3")],
)
def test_a_task_of_srun_is_the_rank_that_torchrun_would_call_it(nodes, first):
    assert external._variables(SRUN | {"SLURM_STEP_NODELIST": nodes}) == {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": first,
        "MASTER_PORT": "21234",
    }


@pytest.mark.parametrize(
    ("node", "cores", "sharing"), [("0", 1, 8), ("2", 1, 4), ("2", 4, 4), ("2", 1024, 1)]
)
def test_tasks_of_a_node_share_its_cores_unless_each_has_its_own(node, cores, sharing, told):
    told.setattr(os, "sched_getaffinity", lambda _: set(range(min(cores, 2))), raising=False)
    slurm = SRUN | {
        "SLURM_STEP_TASKS_PER_NODE": "8(x2),4",
        "SLURM_NODEID": node,
        "SLURM_CPUS_ON_NODE": str(cores),
    }
    assert external._variables(slurm)["LOCAL_WORLD_SIZE"] == str(sharing)


def test_a_restarted_group_finds_the_run_that_it_began(tmp_path, told):
    for name in ("mine", "finished-long-ago"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("")
    beats = {"mine": [Beat(0, 20, 30, os.getpid(), os.getppid(), "train", socket.gethostname())]}
    told.setattr(external.watchdog, "beats", lambda folder: beats.get(folder.name, []))
    assert external.restarted_run(tmp_path) is None
    told.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert external.restarted_run(tmp_path) == tmp_path / "mine"


def without_interface() -> dict[str, str]:
    """Return the environment without what would keep ports off the network."""
    return {key: value for key, value in os.environ.items() if not key.endswith("_SOCKET_IFNAME")}


def tasks(nursery: Nursery, folder: Path, changes: list[list[str]]) -> list[Command]:
    """Start tasks as srun would on one node, each with its own changes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    count = str(len(changes))
    own = {"SLURM_STEP_NUM_TASKS": count, "SLURM_STEP_TASKS_PER_NODE": count, "MASTER_PORT": port}
    common = without_interface() | SRUN | own
    common |= {"SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0"}
    return [
        nursery.run(
            folder,
            "resnet_recipes",
            *SMALL,
            *words,
            environment=common | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
        )
        for rank, words in enumerate(changes)
    ]


@pytest.mark.slow
def test_two_tasks_of_srun_train_one_run_and_one_of_them_speaks(nursery, tmp_path, told):
    (code, out, err), other = (task.wait() for task in tasks(nursery, tmp_path, [[], []]))
    assert (code, *other) == (0, 0, "", ""), err
    assert "top-1" in out
    assert "8 images a step: 2 devices x 1 micro-batch of 4" in err
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"]
    assert read(tmp_path / "runs" / "one" / "exit.json").step == 2
    assert "2 processes" in (tmp_path / "runs" / "one" / "summary.json").read_text()


@pytest.mark.slow
def test_two_tasks_with_different_words_start_nothing(nursery, tmp_path, told):
    started = tasks(nursery, tmp_path, [["gpus=2"], ["gpus=2", "seed=9"]])
    (code, _, err), (also, out, quiet) = (task.wait() for task in started)
    assert (code, also, out, quiet) == (3, 3, "", "")
    assert "seed: is not given on rank 0, but 9 on rank 1" in err
    assert not (tmp_path / "runs").exists()
