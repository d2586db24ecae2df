"""The cores of a rank, on machines that are described by a tree like Linux's /sys."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from resnet_recipes.training.affinity import bind, shares

GPUS = [f"0000:{number:02x}:00.0" for number in range(1, 9)]


def listed(cores: Sequence[int]) -> str:
    """Return cores as the kernel lists them, in runs."""
    firsts = [core for core in cores if core - 1 not in cores]
    lasts = [core for core in cores if core + 1 not in cores]
    return (
        ",".join(
            f"{first}-{last}" if last > first else str(first)
            for first, last in zip(firsts, lasts, strict=True)
        )
        + "\n"
    )


class Machine:
    """A tree like /sys, of NUMA nodes with their cores, and GPUs at nodes."""

    def __init__(
        self,
        sysfs: Path,
        nodes: list[list[int]],
        at: list[int],
        distances: list[list[int]] | None = None,
        threads: int = 0,
    ):
        """Core n and core n + `threads` are threads of one core; 0: there are none."""
        self.pinned: list[set[int]] = []
        self.sysfs, self.gpus, self.all = (
            sysfs,
            GPUS[: len(at)],
            {core for cores in nodes for core in cores},
        )
        for node, cores in enumerate(nodes):
            row = (
                distances[node]
                if distances
                else [10 if other == node else 21 for other in range(len(nodes))]
            )
            self._write(f"devices/system/node/node{node}/cpulist", listed(cores))
            self._write(f"devices/system/node/node{node}/distance", " ".join(map(str, row)))
        for core in self.all:
            both = [core % threads, core % threads + threads] if threads else [core]
            self._write(f"devices/system/cpu/cpu{core}/topology/thread_siblings_list", listed(both))
        for gpu, node in zip(GPUS, at, strict=False):
            self._write(f"bus/pci/devices/{gpu}/numa_node", f"{node}\n")

    def shares(self, allowed: set[int] | None = None) -> list[set[int]]:
        """Return what every rank gets."""
        return shares(self.gpus, allowed or self.all, self.sysfs)

    def _write(self, place: str, text: str) -> None:
        (self.sysfs / place).parent.mkdir(parents=True, exist_ok=True)
        (self.sysfs / place).write_text(text)


@pytest.fixture
def two_sockets(tmp_path: Path) -> Machine:
    """Two nodes of 16 cores with two threads each, numbered as on most servers, and four GPUs at each."""
    halves = [[*range(16), *range(32, 48)], [*range(16, 32), *range(48, 64)]]
    return Machine(tmp_path, halves, [0, 0, 0, 0, 1, 1, 1, 1], threads=32)


def test_a_rank_gets_whole_cores_at_the_node_of_its_gpu(two_sockets):
    assert two_sockets.shares() == [
        {*range(first, first + 4), *range(first + 32, first + 36)} for first in range(0, 32, 4)
    ]


def test_gpus_may_be_numbered_in_any_order(tmp_path):
    machine = Machine(tmp_path, [[0, 1], [2, 3]], [1, 0, 1, 0])
    assert machine.shares() == [{2}, {0}, {3}, {1}]


def test_what_the_scheduler_allows_is_divided_and_nothing_else(two_sockets):
    allowed = {*range(8), *range(20, 28)}  # half of each node, one thread of each core
    dealt = two_sockets.shares(allowed)
    assert dealt == [{0, 1}, {2, 3}, {4, 5}, {6, 7}, {20, 21}, {22, 23}, {24, 25}, {26, 27}]


@pytest.mark.parametrize(
    "allowed",
    [
        set(range(16)),  # one node alone: the other GPUs' ranks are there as well
        {*range(16), *range(16, 20)},  # four cores for four ranks, and sixteen for the other four
    ],
)
def test_a_mask_that_suits_no_even_shares_is_left_as_it_is(two_sockets, allowed):
    assert two_sockets.shares(allowed) == []


def test_ranks_at_one_node_may_use_the_cores_of_the_other(tmp_path):
    assert Machine(tmp_path, [[0, 1, 2, 3], [4, 5, 6, 7]], [0, 0]).shares() == []


def test_nothing_is_pinned_on_a_machine_of_one_node(tmp_path):
    assert Machine(tmp_path, [list(range(16))], [0, 0, 0, 0]).shares() == []


def test_three_ranks_at_one_node_and_one_at_the_other_would_wait_for_the_three(tmp_path):
    assert Machine(tmp_path, [[0, 1, 2, 3], [4, 5, 6, 7]], [0, 0, 0, 1]).shares() == []


def test_nodes_without_gpus_go_to_the_nearest_and_no_core_is_idle(tmp_path):
    # Four nodes on each of two sockets, of which one in two has GPUs: 12 within a socket, 32
    # across.
    nodes = [list(range(4 * node, 4 * node + 4)) for node in range(8)]
    distances = [
        [10 if a == b else 12 if a // 4 == b // 4 else 32 for b in range(8)] for a in range(8)
    ]
    machine = Machine(tmp_path, nodes, [3, 3, 1, 1, 7, 7, 5, 5], distances)
    dealt = machine.shares()
    assert [len(cores) for cores in dealt] == [4] * 8
    assert set().union(*dealt) == machine.all
    # the socket
    assert all({core // 16 for core in cores} == {rank // 4} for rank, cores in enumerate(dealt))
    assert {12, 13} <= dealt[0]
    assert {14, 15} <= dealt[1]


def test_a_node_of_memory_alone_counts_as_its_neighbour(tmp_path):
    # GPUs whose own memory is a node: 2 is beside 0, and 3 beside 1.
    distances = [[10, 40, 20, 60], [40, 10, 60, 20], [20, 60, 10, 80], [60, 20, 80, 10]]
    machine = Machine(tmp_path, [[0, 1], [2, 3], [], []], [3, 2], distances)
    assert machine.shares() == [{2, 3}, {0, 1}]


@pytest.mark.parametrize(
    "missing",
    [
        "devices/system/node/node0/cpulist",
        "devices/system/node/node1/distance",
        f"bus/pci/devices/{GPUS[5]}/numa_node",
        "devices/system/cpu/cpu40/topology/thread_siblings_list",
    ],
)
def test_nothing_is_pinned_where_the_system_does_not_tell(two_sockets, missing):
    (two_sockets.sysfs / missing).unlink()
    assert two_sockets.shares() == []


def test_nothing_is_pinned_where_a_virtual_machine_hides_the_node_of_a_gpu(tmp_path):
    assert Machine(tmp_path, [[0, 1], [2, 3]], [-1, -1]).shares() == []
    assert shares(GPUS, {0, 1}, tmp_path / "no sysfs") == []


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Two nodes of two cores with a GPU each, as torch shows them to each of two ranks."""
    machine = Machine(tmp_path, [[0, 1], [2, 3]], [1, 0])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: machine.all)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: machine.pinned.append(cores))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda number: SimpleNamespace(pci_domain_id=0, pci_bus_id=number + 1, pci_device_id=0),
    )
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    return machine


def test_a_rank_is_bound_once_and_then_has_its_cores_to_itself(two_gpus):
    gpu = torch.device("cuda", 0)
    assert (
        bind(gpu, 0, two_gpus.sysfs)
        == "each rank keeps to its 2 of the 4 cores, at the NUMA node of its GPU"
    )
    assert two_gpus.pinned == [{2, 3}]
    assert os.environ["LOCAL_WORLD_SIZE"] == "1"
    assert bind(gpu, 0, two_gpus.sysfs) == ""
    assert two_gpus.pinned == [{2, 3}]


@pytest.mark.parametrize(
    ("device", "ranks", "visible"), [("cpu", "2", 2), ("cuda", "1", 2), ("cuda", "2", 1)]
)
def test_a_rank_on_a_cpu_or_alone_or_with_only_its_gpu_in_sight_is_not_bound(
    two_gpus, monkeypatch, device, ranks, visible
):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    assert bind(torch.device(device), 0, two_gpus.sysfs) == ""
    assert two_gpus.pinned == []
    assert os.environ["LOCAL_WORLD_SIZE"] == ranks
