"""Images per second, host time and memory of the steps of a training loop, on a batch in memory."""

import gc
from collections.abc import Iterator
from statistics import median

import torch
from faults import measure_or_report_fault
from ratios import MODES
from runs import find_gpu, time_steps
from training_loops import make_loop

from resnet_recipes.planning import roofline
from resnet_recipes.planning.roofline import Work

#: Image size and images per step, the most important first, in case the part is stopped.
CASES = ((176, 256), (88, 256), (224, 256))
QUICK = ((32, 4), (40, 4))
ROUNDS, STEPS, WARM_UP = 5, 10, 8  # after the warm-up, gradients are replayed


def measure_rows(device: torch.device, quick: bool, name: str, turn: str = "") -> Iterator[dict]:
    """Yield the speed of a training loop at every size; `turn` marks a second measurement."""
    is_long = turn == "again" or any(mode in name for mode in ("compiled", *MODES))
    cases = QUICK if quick else CASES[: 1 if is_long else None]
    for size, batch in cases:
        case = f"{size} px, {batch}: {name}"
        yield from measure_or_report_fault(case, _measure, name, size, batch, device, quick)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)


def _measure(name: str, size: int, batch: int, device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield first step, speed and memory of a training loop at one size."""
    steps = make_loop(name, size, batch, device, quick)
    text = f"{size} px, {batch}"
    _, first = time_steps(steps, 1, device)  # this time includes compilation and algorithm search
    yield {"case": f"{text}: {name}, first step", "value": first, "unit": "s"}
    rounds, count, warm_up = (1, 1, 1) if quick else (ROUNDS, STEPS, WARM_UP)
    steps(warm_up)
    timed_rounds = [time_steps(steps, count, device) for _ in range(rounds)]
    rates = [count * batch / seconds for _, seconds in timed_rounds]
    host = median(issued for issued, _ in timed_rounds) / count
    gpu = find_gpu(device) if name in ("ours, Mild", "ours, no methods") and not quick else None
    work = Work("resnet50", size, batch, "Mild" in name, fused=True)
    yield {
        "loop": name,
        "size": text,
        "value": median(rates),
        "unit": "images/s",
        "predicted": gpu and roofline.predict_speed(gpu, work).images_per_second,
        "note": f"{min(rates):,.0f} to {max(rates):,.0f}; host {1e3 * host:.1f} ms a step",
    }
    if device.type == "cuda":
        gigabytes = torch.cuda.max_memory_reserved(device) / 1e9
        yield {"case": f"{text}: {name}, memory", "value": gigabytes, "unit": "GB reserved"}
