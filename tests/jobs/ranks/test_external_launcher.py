"""Ranks started by the user's torchrun or srun detect their rank, and train one run."""

import os
import signal
import socket
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from resnet_recipes import cuda
from resnet_recipes.base.errors import ExitCode, NotReadyError
from resnet_recipes.base.text import do_nothing
from resnet_recipes.jobs.ranks import external_launcher, heartbeat
from resnet_recipes.jobs.ranks.heartbeat import Beat
from resnet_recipes.run_folder.ending import read_ending
from resnet_recipes.training import distributed
from tests.shared.checks import get_error
from tests.shared.forks import Command, ForkServer
from tests.shared.plans import TINY
from tests.shared.sources import ROOT
from tests.shared.tables import parse_rows

#: A run of two steps with eight images each.
SMALL = f"mild {TINY.removesuffix(' gpus=1')} bs=8 batch.bn_size=4 max_duration=2ba run=one".split()

TORCHRUN = "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29400"
SRUN = (
    "SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NUM_NODES=2 "
    "SLURM_STEP_NODELIST=gpu[07-08] SLURM_JOB_ID=41234 SLURM_STEP_TASKS_PER_NODE=4(x2) "
    "SLURM_NODEID=1 SLURM_CPUS_ON_NODE=1"
)


def parse_variables(arguments: str) -> dict[str, str]:
    """Return variables as a shell would set them; the last value of a variable is used."""
    return dict(argument.split("=", 1) for argument in arguments.split())


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [
        *parse_variables(f"{TORCHRUN} {SRUN} LOCAL_WORLD_SIZE="),
        "TORCHELASTIC_RESTART_COUNT",
    ]:
        monkeypatch.setenv(name, "")  # restored after the test, even if other code sets it
        monkeypatch.delenv(name)
    return monkeypatch


def set_arguments(bare_environment: pytest.MonkeyPatch, arguments: str) -> None:
    """Set environment variables, given as a shell would."""
    for name, value in parse_variables(arguments).items():
        bare_environment.setenv(name, value)


@pytest.mark.parametrize(
    ("arguments", "by"),
    [
        ("", ""),
        (TORCHRUN, "torchrun"),
        (SRUN, "srun"),
        (f"{SRUN} {TORCHRUN}", "torchrun"),
        # a single task starts one process per GPU itself
        (f"{SRUN} SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", ""),
        ("SLURM_PROCID=0 SLURM_NTASKS=8", ""),  # in a batch script, not started by srun
        (f"{SRUN} SLURM_JOB_ID=4026531841", "srun"),  # in a federation of clusters
    ],
)
def test_launcher_is_recognized_by_its_environment(arguments, by, bare_environment):
    set_arguments(bare_environment, arguments)
    assert external_launcher.find_launcher() == by


@pytest.mark.timeout(20)  # accepted ranks wait for the others
@pytest.mark.parametrize(
    ("arguments", "message"),
    parse_rows(
        f"""
RANK=x | RANK=x must be a whole number; torchrun or srun sets it
RANK=x | unset RANK
{TORCHRUN} WORLD_SIZE=-2 | WORLD_SIZE=-2 must be a whole number
{TORCHRUN} RANK=2 | RANK=2 must be less than WORLD_SIZE=2
{TORCHRUN} MASTER_ADDR= | MASTER_ADDR is not set
{TORCHRUN} MASTER_PORT=http | MASTER_PORT=http must be a whole number
SLURM_STEP_NUM_TASKS=two | SLURM_STEP_NUM_TASKS=two must be a whole number
LOCAL_WORLD_SIZE=\u0663 | LOCAL_WORLD_SIZE=\u0663 must be a whole number
{SRUN} SLURM_PROCID=x | SLURM_PROCID=x must be a whole number
{SRUN} SLURM_PROCID=8 | SLURM_PROCID=8 must be less than SLURM_STEP_NUM_TASKS=8
{SRUN} SLURM_LOCALID=x | SLURM_LOCALID=x must be a whole number
{SRUN} SLURM_CPUS_ON_NODE=x | SLURM_CPUS_ON_NODE=x must be a whole number
{SRUN} SLURM_JOB_ID=x | SLURM_JOB_ID=x must be a whole number
{SRUN} SLURM_NODEID=7 | SLURM_NODEID=7 is not one of the nodes in SLURM_STEP_TASKS_PER_NODE=4(x2)
{SRUN.replace("SLURM_STEP_NODELIST=gpu[07-08] ", "")} | SLURM_STEP_NODELIST is not set, but srun
"""
    ),
)
def test_train_as_rank_rejects_impossible_variables_by_name(arguments, message, bare_environment):
    set_arguments(bare_environment, arguments)
    error = get_error(NotReadyError, external_launcher.train_as_rank, [], Path, do_nothing)
    assert message in str(error)


def test_train_as_rank_reports_port_in_use(bare_environment):
    distributed.open_store.cache_clear()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        set_arguments(bare_environment, f"{TORCHRUN} RANK=0 MASTER_PORT={taken.getsockname()[1]}")
        with pytest.raises(
            NotReadyError, match=r"127\.0\.0\.1:\d+: rank 0 cannot reach the others there: .*in use"
        ):
            external_launcher.train_as_rank([], Path, do_nothing)


@pytest.mark.parametrize(
    ("environment", "key"), [(TORCHRUN, "WORLD_SIZE"), (SRUN, "SLURM_STEP_NUM_TASKS")]
)
def test_train_as_rank_reports_once_that_it_waits(environment, key, bare_environment):
    messages = []
    distributed.open_store.cache_clear()
    set_arguments(bare_environment, f"{environment} RANK=0 SLURM_PROCID=0 SLURM_STEP_NUM_NODES=1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        bare_environment.setenv("MASTER_PORT", str(free.getsockname()[1]))
    bare_environment.setattr(external_launcher, "_SILENCE_SECONDS", 0.1)
    bare_environment.setattr(external_launcher, "_MAX_WAIT_SECONDS", 1.2)
    with pytest.raises(NotReadyError, match=f"{key}=[28]: not all of these ranks .*\n.*unset"):
        external_launcher.train_as_rank([], Path, messages.append)
    assert ["waiting for the other ranks" in text for text in messages] == [True]


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_train_as_rank_reports_impossible_port(address, bare_environment):
    distributed.open_store.cache_clear()
    set_arguments(bare_environment, f"{TORCHRUN} RANK=0 MASTER_ADDR={address} MASTER_PORT=99999")
    with pytest.raises(NotReadyError, match=f"{address}:99999: rank 0 cannot reach .* port must"):
        external_launcher.train_as_rank([], Path, do_nothing)


def test_train_as_rank_sets_allocator_like_our_launcher(bare_environment):
    bare_environment.setattr(
        os, "environ", parse_variables(TORCHRUN) | {"PATH": os.environ["PATH"]}
    )
    bare_environment.setattr(cuda, "has_nvml", lambda: True)
    bare_environment.setattr(external_launcher, "_join_rendezvous", Mock())
    bare_environment.setattr(external_launcher, "_await_others", Mock())
    bare_environment.setattr(external_launcher, "_confirm_arguments", lambda *_: ExitCode.NOT_READY)
    assert external_launcher.train_as_rank([], Path, do_nothing) == ExitCode.NOT_READY
    assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"


def start_stand_in(forks: ForkServer, folder: Path, rank: int) -> Command:
    """Start a rank of two that behaves as in RUN/behavior."""
    path = f"{Path(__file__).parent}:{ROOT}"
    variables = {"PYTHONPATH": path, "WORLD_SIZE": "2", "RANK": str(rank)}
    return forks.run(folder, "stand_in", str(folder), environment=os.environ | variables)


def test_failure_with_gloo_in_its_text_is_reported(tmp_path, forks, bare_environment):
    (tmp_path / "behavior").write_text("wrong@0")
    code, _, error = start_stand_in(forks, tmp_path, 0).wait()
    assert code == 1
    assert "rank 0 failed 0" in error
    assert "igloo" in error


@pytest.mark.parametrize(
    ("behavior", "reporter"), [("finish@0 not-ready@1", 1), ("not-ready-last@0 not-ready@1", 0)]
)
def test_problem_of_all_ranks_is_printed_once(
    behavior, reporter, tmp_path, forks, bare_environment
):
    (tmp_path / "behavior").write_text(behavior)
    ranks = []
    for rank in (0, 1):
        ranks.append(start_stand_in(forks, tmp_path, rank))
        while not list(tmp_path.glob("heartbeat/*")):  # rank 1 rejects after rank 0 starts
            time.sleep(0.01)
    errors = [rank.wait()[2] for rank in ranks]
    assert ["data.root=/data is gone" in text for text in errors] == [reporter == 0, reporter == 1]
    assert ("on rank 1; log: " in errors[1]) == (reporter == 1)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu7", "gpu7"), ("gpu[07-09,11],big1", "gpu07"), ("a,b", "a"), ("r[1-2]n[3-4]", "r1n3")],
)
def test_srun_task_has_the_rank_of_torchrun(nodes, first):
    variables = external_launcher._get_variables(
        parse_variables(f"{SRUN} SLURM_STEP_NODELIST={nodes}")
    )
    ours = "RANK=5 LOCAL_RANK=1 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 MASTER_PORT=21234"
    assert variables == parse_variables(f"{ours} MASTER_ADDR={first}")


def test_srun_port_exists_for_large_federated_job_id(bare_environment):
    variables = external_launcher._get_variables(parse_variables(f"{SRUN} SLURM_JOB_ID=4026531841"))
    assert variables["MASTER_PORT"] == "31841"


@pytest.mark.parametrize(
    ("node", "cores", "sharing"), [(0, 1, 8), (2, 1, 4), (2, 4, 4), (2, 1024, 1)]
)
def test_ranks_share_cores_unless_slurm_splits_them(node, cores, sharing, bare_environment):
    bare_environment.setattr(
        os, "sched_getaffinity", lambda _: set(range(min(cores, 2))), raising=False
    )
    slurm = f"SLURM_STEP_TASKS_PER_NODE=8(x2),4 SLURM_NODEID={node} SLURM_CPUS_ON_NODE={cores}"
    variables = external_launcher._get_variables(parse_variables(f"{SRUN} {slurm}"))
    assert variables["LOCAL_WORLD_SIZE"] == str(sharing)


def test_find_restarted_run_returns_run_of_this_group(tmp_path, bare_environment):
    for name in ("mine", "finished-long-ago"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("")
    beats = {"mine": [Beat(0, 20, 30, os.getpid(), os.getppid(), "train", socket.gethostname())]}
    bare_environment.setattr(
        external_launcher.heartbeat, "read_beats", lambda folder: beats.get(folder.name, [])
    )
    assert external_launcher.find_restarted_run(tmp_path) is None
    bare_environment.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert external_launcher.find_restarted_run(tmp_path) == tmp_path / "mine"


def get_environment_without_interface() -> dict[str, str]:
    """Return the environment without variables that would restrict ports to this machine."""
    return {key: value for key, value in os.environ.items() if not key.endswith("_SOCKET_IFNAME")}


def start_tasks(forks: ForkServer, folder: Path, changes: list[list[str]]) -> list[Command]:
    """Start tasks as srun would on one node, each with its own changes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    count = len(changes)
    one_node = (
        f"SLURM_STEP_NUM_TASKS={count} SLURM_STEP_TASKS_PER_NODE={count} MASTER_PORT={port} "
        "SLURM_STEP_NUM_NODES=1 SLURM_NODEID=0"
    )
    return [
        forks.run(
            folder,
            "resnet_recipes",
            *SMALL,
            *arguments,
            environment=get_environment_without_interface()
            | parse_variables(f"{SRUN} {one_node} SLURM_PROCID={rank} SLURM_LOCALID={rank}"),
        )
        for rank, arguments in enumerate(changes)
    ]


@pytest.mark.slow
def test_srun_tasks_train_one_run_and_print_once(forks, tmp_path, bare_environment):
    (code, out, err), other = (task.wait() for task in start_tasks(forks, tmp_path, [[], []]))
    assert (code, *other) == (0, 0, "", ""), err
    assert "top-1" in out
    assert "8 images per step: 2 devices x 1 micro-batch of 4" in err
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["one"]
    assert read_ending(tmp_path / "runs/one/exit.json").step == 2
    assert "2 processes" in (tmp_path / "runs/one/summary.json").read_text()


@pytest.mark.slow
def test_tasks_with_different_arguments_start_nothing(forks, tmp_path, bare_environment):
    started = start_tasks(forks, tmp_path, [["gpus=2"], ["gpus=2", "seed=9"]])
    (code, _, err), (also, out, quiet) = (task.wait() for task in started)
    assert (code, also, out, quiet) == (3, 3, "", "")
    assert "seed is not given on rank 0, but 9 on rank 1" in err
    assert not (tmp_path / "runs").exists()


def list_listening_addresses(pids: set[int]) -> set[str]:
    """Return the TCP addresses that the processes listen on, as in /proc/net."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/fd").iterdir()]
    sockets = {os.readlink(file) for file in files}
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in sockets:
                addresses.add(local.partition(":")[0])
    return addresses


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/net")
@pytest.mark.parametrize("by", ["our launcher", "srun"])
def test_ranks_of_one_machine_listen_on_loopback_only(by, forks, tmp_path):
    if by == "srun":
        started = start_tasks(forks, tmp_path, [["max_duration=5000ba"]] * 2)
    else:
        arguments = ["resnet_recipes", *SMALL, "max_duration=5000ba", "gpus=2"]
        started = [forks.run(tmp_path, *arguments, environment=get_environment_without_interface())]
    try:
        while sum(beat.step > 2 for beat in heartbeat.read_beats(tmp_path / "runs/one")) < 2:
            assert all(task.poll() is None for task in started), [
                task.read_streams() for task in started
            ]
            time.sleep(0.05)
        ranks = {beat.pid for beat in heartbeat.read_beats(tmp_path / "runs/one")}
        assert list_listening_addresses({*ranks, *(task.pid for task in started)}) == {
            "0100007F"
        }  # 127.0.0.1
    finally:
        for task in started:
            os.kill(task.pid, signal.SIGTERM)
        for task in started:
            task.wait()
