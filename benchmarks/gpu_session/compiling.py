"""Seconds that `precision.compile=true` takes: for a first image size, and for a second one after it."""

import time
from collections.abc import Iterator

import torch
from session import Counting, Memory, recipe_of, run_of

from resnet_recipes.doctor.rates import settle
from resnet_recipes.training.loop import train


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield the seconds of the first steps, including compilation, and the number of compiled graphs."""
    sides, batch = ((32, 40), 2) if quick else ((128, 176), 256)
    is_cpu = device.type == "cpu"  # where the script is only tested, without generating code
    run = run_of(
        recipe_of("mild", sides[0], batch, quick, precision={"compile": not is_cpu}), device
    )
    if is_cpu:
        run.model.compile(backend="eager", dynamic=True)
    done = 0
    for side in sides:
        run.train_data = Memory(side, batch, device)
        began = time.perf_counter()
        done = train(run, Counting(2), done)
        settle(device)
        yield {
            "case": f"compiled, first two steps at {side} px",
            "value": time.perf_counter() - began,
            "unit": "s",
        }
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    yield {"case": f"graphs for {len(sides)} sizes", "value": graphs, "unit": "graphs"}
