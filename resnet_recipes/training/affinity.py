"""The cores of a rank: those nearest its GPU."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

SYSFS = Path("/sys")


def bind(device: torch.device, local_rank: int, sysfs: Path = SYSFS) -> str:
    """Keep this thread, and all threads and processes it starts from now on, to its rank's `shares`; return a note.

    Its memory follows, since a page lies on the NUMA node that first touches it. Costs some
    milliseconds. Nothing is done, and the note is empty, without a GPU, for a rank that has its
    cores to itself (as srun binds it), and where a rank does not see the GPUs of the others.
    """
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if (
        device.type != "cuda"
        or not 1 < ranks <= torch.cuda.device_count()
        or not hasattr(os, "sched_setaffinity")
    ):
        return ""
    allowed = os.sched_getaffinity(0)
    dealt = shares([_address(number) for number in range(ranks)], allowed, sysfs)
    if not dealt:
        return ""
    os.sched_setaffinity(0, dealt[local_rank])
    os.environ["LOCAL_WORLD_SIZE"] = "1"  # it counts the ranks that share this one's cores
    return (
        f"each rank keeps to its {min(map(len, dealt))} of the {len(allowed)} cores, at the "
        "NUMA node of its GPU"
    )


def shares(gpus: Sequence[str], allowed: set[int], sysfs: Path = SYSFS) -> list[set[int]]:
    """Return the cores of each rank, out of `allowed`, by the PCI addresses of their GPUs; empty: pin nothing.

    A rank gets a part of the NUMA node of its GPU, and of nodes without GPUs that are nearest to
    it. Threads of a core go to one rank. Nothing is pinned if all GPUs are at one node, if the
    system does not tell, or if a rank would get less than nine tenths of an even share: the kernel
    balances better than a fixed share does, and all ranks wait for the slowest.
    """
    try:
        nodes = {number: cores & allowed for number, cores in _nodes(sysfs) if cores & allowed}
        homes = [_nearest(_number(sysfs, gpu), nodes, sysfs) for gpu in gpus]
        if len(set(homes)) < 2:
            return []
        dealt: list[set[int]] = [set() for _ in gpus]
        for node in sorted(nodes, key=lambda node: node not in homes):  # those with GPUs first
            ranks = _takers(node, homes, dealt, sysfs)
            cores = sorted(nodes[node], key=lambda core: (min(_siblings(core, sysfs)), core))
            for place, rank in enumerate(ranks):
                dealt[rank].update(
                    cores[place * len(cores) // len(ranks) : (place + 1) * len(cores) // len(ranks)]
                )
    except (OSError, ValueError):
        return []
    return dealt if min(map(len, dealt)) * len(gpus) >= 0.9 * len(allowed) else []


def _address(number: int) -> str:
    """Return the PCI address of a GPU, as sysfs writes it."""
    gpu = torch.cuda.get_device_properties(number)
    return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"


def _nodes(sysfs: Path) -> Iterator[tuple[int, set[int]]]:
    """Yield the NUMA nodes with their cores; a node that is only memory has none."""
    for folder in sorted((sysfs / "devices/system/node").glob("node[0-9]*")):
        yield int(folder.name.removeprefix("node")), _cores(folder / "cpulist")


def _number(sysfs: Path, gpu: str) -> int:
    """Return the node of a GPU. Raises ValueError if the system does not know it, as in many virtual machines."""
    if (number := int((sysfs / "bus/pci/devices" / gpu / "numa_node").read_text())) < 0:
        raise ValueError
    return number


def _nearest(node: int, nodes: Mapping[int, set[int]], sysfs: Path) -> int:
    """Return the node with cores that is nearest to `node`: itself, if it has any."""
    distances = _distances(node, sysfs)
    return min(nodes, key=lambda other: (distances[other], other))


def _takers(node: int, homes: Sequence[int], dealt: Sequence[set[int]], sysfs: Path) -> list[int]:
    """Return the ranks that share a node: those of the nearest GPUs, and if equally near, those with fewest cores."""
    distances = _distances(node, sysfs)
    home = min(set(homes), key=lambda home: (distances[home], len(dealt[homes.index(home)]), home))
    return [rank for rank, own in enumerate(homes) if own == home]


def _distances(node: int, sysfs: Path) -> dict[int, int]:
    """Return how far the nodes are from `node`, in the firmware's units: 10 is the node itself."""
    numbers = sorted(number for number, _ in _nodes(sysfs))
    row = map(int, (sysfs / f"devices/system/node/node{node}/distance").read_text().split())
    return dict(zip(numbers, row, strict=True))


def _siblings(core: int, sysfs: Path) -> set[int]:
    """Return the threads of the core that `core` is one of."""
    return _cores(sysfs / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list")


def _cores(path: Path) -> set[int]:
    """Read a list of cores such as 0-15,64-79."""
    ends = [part.split("-") for part in path.read_text().strip().split(",") if part]
    return {core for end in ends for core in range(int(end[0]), int(end[-1]) + 1)}
