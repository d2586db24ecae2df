"""Measure the cost of several ranks: training steps per second with gradient exchange and without.

    python benchmarks/exchange.py [--model resnet18] [--batch 16] [--pixels 64] [--steps 10]
    [--rounds 5] [--json FILE]

Three cases: one process that exchanges with itself against one that does not; two ranks (gloo, on
the CPU) against two independent processes that share the machine in the same way; and these two
ranks with gradients sent as bf16. Contenders run in turns, so that a noisy machine affects all
alike. The ratio is the speed with the exchange over that without. If there is a GPU, the first case
runs on it, over NCCL.
"""

import argparse
import json
import os
import socket
import statistics
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch
from rich.console import Console
from rich.table import Table
from trainer import CLASSES, Silence, in_memory

from resnet_recipes.data.base import RawBatch
from resnet_recipes.training import distributed
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.loop import train
from resnet_recipes.training.run import Run


def made(args: argparse.Namespace, rank: Rank, compress: bool) -> Run:
    """Return a run on one batch in memory, which exchanges gradients if there is a process group."""
    generator = torch.Generator().manual_seed(rank.rank)
    pixels = torch.randint(
        0, 256, (args.batch, args.pixels, args.pixels, 3), dtype=torch.uint8, generator=generator
    ).permute(0, 3, 1, 2)
    batch = RawBatch(
        pixels.to(rank.device),
        torch.randint(0, CLASSES, (args.batch,), generator=generator).to(rank.device),
    )
    return in_memory(args, batch, rank, compress)


def member(
    args: argparse.Namespace, rank: Rank, how: tuple[bool, bool, int], orders: Connection
) -> None:
    """Run one process of a contender: train on request and reply with the seconds."""
    grouped, compress, port = how
    torch.set_num_threads(1 if rank.world_size > 1 else args.threads)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    if grouped:
        distributed.form_group(rank)
    run = made(args, rank, compress)
    while orders.recv():
        began = time.perf_counter()
        reporter = Silence()
        train(run, reporter)
        orders.send(time.perf_counter() - began)


class Contender:
    """Processes that train in step, or side by side."""

    def __init__(
        self,
        args: argparse.Namespace,
        ranks: int,
        device: torch.device,
        grouped: bool,
        compress: bool = False,
    ):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context, self.pipes, self.steps = get_context("spawn"), [], args.steps
        for number in range(ranks):
            here, there = context.Pipe()
            rank = Rank(number, number, ranks, device)
            context.Process(
                target=member, args=(args, rank, (grouped, compress, port), there), daemon=True
            ).start()
            self.pipes.append(here)

    def rate(self) -> float:
        """Train in all processes and return the steps per second of the slowest."""
        for pipe in self.pipes:
            pipe.send(True)
        return self.steps / max(pipe.recv() for pipe in self.pipes)

    def stop(self) -> None:
        """End the processes."""
        for pipe in self.pipes:
            pipe.send(False)


def measured(name: str, ours: Contender, peer: Contender, rounds: int) -> dict:
    """Return the row of one case; the first turn warms up."""
    turns = [
        (ours.rate(), peer.rate()) if turn % 2 else (peer.rate(), ours.rate())[::-1]
        for turn in range(rounds + 1)
    ][1:]
    ours.stop()
    peer.stop()
    ratios = [a / b for a, b in turns]
    return {
        "case": name,
        "ours": statistics.median(a for a, _ in turns),
        "peer": statistics.median(b for _, b in turns),
        "ratio": statistics.median(ratios),
        "unit": "steps/s",
        "range": [min(ratios), max(ratios)],
    }


def main() -> None:
    """Measure, print a table, and write the rows to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="resnet18")
    for name, default in (
        ("batch", 16),
        ("pixels", 64),
        ("steps", 10),
        ("rounds", 5),
        ("threads", torch.get_num_threads()),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json")
    args = parser.parse_args()
    cpu = torch.device("cpu")
    first = torch.device("cuda", 0) if torch.cuda.is_available() else cpu
    size = f"{args.model} {args.pixels} px, batch {args.batch}"
    rows = [
        measured(
            f"{size}, 1 rank, {first.type}",
            Contender(args, 1, first, True),
            Contender(args, 1, first, False),
            args.rounds,
        ),
        measured(
            f"{size}, 2 ranks, cpu",
            Contender(args, 2, cpu, True),
            Contender(args, 2, cpu, False),
            args.rounds,
        ),
        measured(
            f"{size}, 2 ranks, cpu, bf16",
            Contender(args, 2, cpu, True, True),
            Contender(args, 2, cpu, False),
            args.rounds,
        ),
    ]
    table = Table(
        "case",
        "with",
        "without",
        "ratio",
        "range",
        title="training with gradient exchange and without, steps per second",
    )
    for row in rows:
        low, high = row["range"]
        table.add_row(
            row["case"],
            f"{row['ours']:.3f}",
            f"{row['peer']:.3f}",
            f"{row['ratio']:.3f}",
            f"{low:.3f} to {high:.3f}",
        )
    Console().print(table)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
