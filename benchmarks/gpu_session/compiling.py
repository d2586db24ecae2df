"""Seconds that `precision.compile=true` takes: with one image size, and where a second one follows."""

import time
from collections.abc import Iterator

import torch
from session import Counting, Memory, recipe_of, run_of

from resnet_recipes.doctor.rates import settle
from resnet_recipes.train.loop import train


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield seconds of the first steps, compilation and all, and the graphs that were compiled."""
    sides, batch = ((32, 40), 2) if quick else ((128, 176), 256)
    is_cpu = device.type == "cpu"       # where the script is only tried, without generating code
    run = run_of(recipe_of("mild", sides[0], batch, quick, precision={"compile": not is_cpu}), device)
    if is_cpu:
        run.model.compile(backend="eager", dynamic=True)
    done = 0
    for side in sides:
        run.train_data = Memory(side, batch, device)
        began = time.perf_counter()
        done = train(run, Counting(2), done)
        settle(device)
        yield {"case": f"compiled, first two steps at {side} px", "value": time.perf_counter() - began, "unit": "s"}
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    yield {"case": f"graphs for {len(sides)} sizes", "value": graphs, "unit": "graphs"}
