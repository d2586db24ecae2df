"""Every kernel of a contender's training step.

How often it runs, how long it takes, its full name; and what each kind of operation takes.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

import torch
from contenders import contender
from torch.profiler import ProfilerActivity, profile
from verdict import tried

SIDES, BATCH = (176, 224, 88), 256
WARM_UP, STEPS = 12, 4  # gradients are replayed after the warm-up

#: What the names of kernels contain: ours, torch's, cuDNN's and cuBLAS's. The first that fits.
KINDS = {
    "blur": r"^_(gather|scatter)$|depthwise",
    "BatchNorm": r"^_(statistics|apply|reduce|spread)$|batch_norm|bn_[fb]w",
    "max pool": r"pool",
    "convolutions and last layer": r"xmma|cutlass|nvjet|cask|splitK|nhwcAddPadding|convolve",
    "others": "",
}


def rows(device: torch.device, quick: bool, name: str) -> Iterator[dict]:
    """Yield rows of all kernels of a step, of each kind, and of each one, the longest first."""
    for side in (32,) if quick else SIDES:
        yield from tried(f"{side} px", partial(_profiled, name, side, device, quick))


def _profiled(name: str, side: int, device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield the rows of one size."""
    kind = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    steps = contender(name, side, 4 if quick else BATCH, device, quick)
    steps(1 if quick else WARM_UP)
    with profile(activities=[kind]) as measured:
        steps(STEPS)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    yield from _kernels(f"{side} px", measured.events(), device)


def _kernels(size: str, events: list, device: torch.device) -> Iterator[dict]:
    """Yield microseconds per step of every kernel, copy and fill on the device."""
    taken: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.device_type.name.lower() == device.type and not event.name.startswith(
            "Optimizer."
        ):
            taken[event.name].append(event.time_range.elapsed_us())
    whole = sum(map(sum, taken.values())) or 1.0
    count = sum(map(len, taken.values()))
    yield {"case": f"{size}: kernels, copies, fills", "value": count / STEPS, "unit": "a step"}
    yield {"case": f"{size}: all of them", "value": whole / STEPS, "unit": "us a step"}
    kinds: dict[str, float] = defaultdict(float)
    for name, times in taken.items():
        kinds[kind_of(name)] += sum(times)
    for kind, spent in kinds.items():
        note = f"{100 * spent / whole:.1f} %"
        row = {"value": spent / STEPS, "unit": "us a step", "note": note}
        yield {"case": f"{size}: {kind}"} | row
    for name in sorted(taken, key=lambda each: -sum(taken[each])):
        yield {
            "case": f"{size}: {name[:40]}",
            "kernel": name,
            "count": len(taken[name]) / STEPS,
            "value": sum(taken[name]) / STEPS,
            "unit": "us a step",
            "note": f"{len(taken[name]) / STEPS:g} x, {100 * sum(taken[name]) / whole:.1f} %",
        }


def kind_of(kernel: str) -> str:
    """Return the kind of operation that a kernel belongs to, by its name."""
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, kernel))
