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
from tests.jobs.test_external import SMALL, tasks, without_interface

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/net"),
]

LONG = ["max_duration=5000ba"]


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
    if by == "srun":
        started = tasks(nursery, tmp_path, [LONG, LONG])
    else:
        words = ["resnet_recipes", *SMALL, *LONG, "gpus=2"]
        started = [nursery.run(tmp_path, *words, environment=without_interface())]
    try:
        deadline = time.monotonic() + 60
        while sum(beat.step > 2 for beat in watchdog.beats(tmp_path / "runs" / "one")) < 2:
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
