"""Every kernel of a training step: count, time and full name; and time by kind."""

import re
from collections import Counter
from collections.abc import Iterator

import torch
from faults import measure_or_report_fault
from torch.profiler import ProfilerActivity, profile
from training_loops import make_loop

SIZES = (176, 224, 88)
BATCH = 256
WARM_UP, STEPS = 12, 4  # gradients are replayed after the warm-up

#: Patterns of kernel names: ours, torch, cuDNN and cuBLAS. The first match is used.
KINDS = {
    "blur": r"^_(gather|scatter)$|depthwise",
    "BatchNorm": r"^_(reduce_statistics|apply|reduce|compute_input_gradient)$|batch_norm|bn_[fb]w",
    "max pool": r"pool",
    "convolutions and last layer": r"xmma|cutlass|nvjet|cask|splitK|nhwcAddPadding|convolve",
    "others": "",
}


def measure_rows(device: torch.device, quick: bool, name: str) -> Iterator[dict]:
    """Yield rows for all kernels of a step, each kind, and each kernel, the longest first."""
    for size in (32,) if quick else SIZES:
        yield from measure_or_report_fault(f"{size} px", _profile, name, size, device, quick)


def _profile(name: str, size: int, device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield the rows of one size."""
    kind = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    steps = make_loop(name, size, 4 if quick else BATCH, device, quick)
    steps(1 if quick else WARM_UP)
    with profile(activities=[kind]) as measured:
        steps(STEPS)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    yield from _measure_kernels(f"{size} px", measured.events(), device)


def _measure_kernels(case: str, events: list, device: torch.device) -> Iterator[dict]:
    """Yield microseconds per step of every kernel, copy and fill on the device."""
    times = Counter()
    counts = Counter()
    kinds = Counter()
    for event in events:
        name = event.name
        microseconds = event.time_range.elapsed_us() / STEPS
        if event.device_type.name.lower() == device.type and not name.startswith("Optimizer."):
            times[name] += microseconds
            counts[name] += 1 / STEPS
            kinds[classify(name)] += microseconds
    total = times.total()
    unit = {"unit": "us a step"}
    yield {
        "case": f"{case}: kernels, copies, fills",
        "value": counts.total(),
        "unit": "a step",
    }
    yield {"case": f"{case}: all of them", "value": total} | unit
    for kind, microseconds in kinds.items():
        percentage = f"{100 * microseconds / total:.1f}%"
        yield {"case": f"{case}: {kind}", "value": microseconds, "note": percentage} | unit
    for name, microseconds in times.most_common():
        yield unit | {
            "case": f"{case}: {name[:40]}",
            "kernel": name,
            "count": counts[name],
            "value": microseconds,
            "note": f"{counts[name]:g} x, {100 * microseconds / total:.1f}%",
        }


def classify(kernel: str) -> str:
    """Return the kind of operation that a kernel belongs to, by its name."""
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, kernel))
