"""Kernels of a training step as torch's profiler counts them, compared with the count on the null device.

Gradients are computed kernel by kernel, without CUDA graphs. The profiler does not start on the
null device.
"""

import json
from collections import Counter
from collections.abc import Iterator

import torch
from session import Counting, recipe_of, run_of
from torch.profiler import ProfilerActivity, profile

from resnet_recipes.training.loop import train

#: Launches, copies and fills of a step, from tools/null_device/step.py;
#: tests/tools/test_null_device.py limits them. They are torch 2.15's: with torch 2.11 the optimizer
#: of Mild is six launches more, as one takes fewer tensors.
EXPECTED = {"mild": 400, "medium": 405, "hot": 424}
FIRST, STEPS = 11, 4  # the steps after step 10, of which none has SAM's second pass in Medium


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield launches and the longest kernels of each recipe."""
    for name, expected in EXPECTED.items():
        run = run_of(recipe_of(name, 64 if quick else 128, 4 if quick else 256, quick), device)
        run.graphs = None
        done = train(run, Counting(FIRST))
        kind = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
        with profile(activities=[kind]) as profiled:
            train(run, Counting(STEPS), done)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        events = [
            event
            for event in profiled.events()
            if event.device_type.name.lower() == device.type
            and not event.name.startswith("Optimizer.")
        ]
        yield {
            "case": f"{name}, launches a step",
            "value": len(events) / STEPS,
            "unit": "kernels, copies, fills",
            "predicted": None if quick else expected,
        }
        yield from _longest(name, events)


def _longest(name: str, events: list) -> Iterator[dict]:
    """Yield the kernels that take most of the time."""
    taken = Counter()
    for event in events:
        taken[event.name[:40]] += event.time_range.elapsed_us()
    whole = max(taken.total(), 1e-9)
    yield from (
        {
            "case": f"{name}: {json.dumps(kernel)[1:36]}",
            "value": 100 * part / whole,
            "unit": "% of device time",
        }
        for kernel, part in taken.most_common(12)
    )
