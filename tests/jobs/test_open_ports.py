"""A run on one machine is not reachable from the network."""

import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from resnet_recipes.jobs import watchdog

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/net"),
]

TRAIN = [
    "resnet_recipes",
    "recipe=mild",
    "run=open",
    "launch.device=cpu",
    "data.backend=synthetic",
    "data.train_size=32",
    "data.eval_resize=32",
    "data.eval_size=32",
    "bs=8",
    "batch.bn_size=4",
    "lr=0.05",
    "model.name=resnet18",
    "schedule.warmup=1ba",
    "max_duration=5000ba",
    "ssr=1",
]

SRUN = {
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NODELIST": "node7",
    "SLURM_JOB_ID": "41234",
    "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURM_NODEID": "0",
}


def listening(pids: set[int]) -> Iterator[str]:
    """Yield the addresses of TCP sockets on which the processes listen, as in /proc/net."""
    own = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            own.add(os.readlink(descriptor))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in own:
                yield local.partition(":")[0]


def family(pids: list[int]) -> set[int]:
    """Return processes with all their descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, parent = int(stat.parent.name), int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(pid)
    found, ahead = set(), list(pids)
    while ahead:
        found.add(pid := ahead.pop())
        ahead += children.get(pid, [])
    return found


@pytest.mark.parametrize("by", ["our launcher", "srun"])
def test_the_ranks_of_one_machine_listen_on_the_loopback_interface_only(by, nursery, tmp_path):
    environment = {
        key: value for key, value in os.environ.items() if not key.endswith("_SOCKET_IFNAME")
    }
    if by == "srun":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        tasks = [
            ({"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i), "MASTER_PORT": port, **SRUN}, [])
            for i in range(2)
        ]
    else:
        tasks = [({}, ["gpus=2"])]
    started = [
        nursery.run(tmp_path, *TRAIN, *words, environment=environment | own) for own, words in tasks
    ]
    try:
        deadline = time.monotonic() + 60
        while sum(beat.step > 2 for beat in watchdog.beats(tmp_path / "runs" / "open")) < 2:
            assert time.monotonic() < deadline
            assert all(task.poll() is None for task in started), [task.said() for task in started]
            time.sleep(0.05)
        addresses = list(listening(family([task.pid for task in started])))
        assert addresses
        assert set(addresses) == {f"{struct.unpack('=I', socket.inet_aton('127.0.0.1'))[0]:08X}"}
    finally:
        for task in started:
            os.kill(task.pid, signal.SIGTERM)
        for task in started:
            task.wait()
