"""Training steps per second at four image sizes: ours and its peers, on one batch in memory, in turns."""

import gc
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch
import torchvision
from peers import bare, composer, timm_loop, torchvision_reference
from session import Memory, Steps, dtype_of, gpu_of, in_turns, ours, recipe_of, without_methods

from resnet_recipes.measure import roofline
from resnet_recipes.measure.roofline import Work

#: Image side and images per step, the most important first, in case the section is stopped.
CASES = ((176, 256), (88, 256), (224, 256), (128, 256), (88, 1024))
COMPILED = (176, 256)
ROUNDS, STEPS, WARM_UP = 3, 10, 8  # after the warm-up, gradients are replayed


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield images per second of every contender, host ms per step, memory, and our ratio to the best peer."""
    for side, batch in ((32, 4), (40, 4)) if quick else CASES:
        found, is_last = {}, quick and side == 40
        for name, make in _contenders(
            side, batch, device, quick, (side, batch) == COMPILED or is_last
        ).items():
            if contender := _started(name, make, device):
                found[name] = contender
        if found:
            yield from _measured(f"{side} px, {batch}", side, batch, found, device, quick)
        found.clear()
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _contenders(
    side: int, batch: int, device: torch.device, quick: bool, compiled: bool
) -> dict[str, Callable]:
    """Return a function for each contender that makes it."""
    recipe, memory, dtype = (
        recipe_of("mild", side, batch, quick),
        Memory(side, batch, device),
        dtype_of(device),
    )
    model, blurred = ("resnet18", "resnet18") if quick else ("resnet50", "resnetblur50")
    network = partial(torchvision.models.get_model, model)
    off = recipe_of("mild", side, batch, quick, precision={"kernels": "off"})
    made = {
        "ours, Mild": partial(ours, recipe, device),
        "ours, Mild, kernels off": partial(ours, off, device),
        "ours, no methods": partial(ours, without_methods(recipe), device),
        "bare loop": lambda: bare(network(), memory, device, dtype),
        "torchvision reference": partial(torchvision_reference, memory, device, model),
        "timm": partial(timm_loop, model, memory, device, dtype),
        "timm, blurred": partial(timm_loop, blurred, memory, device, dtype),
        "Composer, transcribed": partial(composer, memory, device, model),
    }
    if device.type == "cuda" and side <= 128:
        made["ours, Mild, not replayed"] = partial(ours, recipe, device, is_replayed=False)
    if compiled:
        tree = recipe_of("mild", side, batch, quick, precision={"compile": True})
        made |= (
            {"ours, Mild, compiled": partial(ours, tree, device)} if device.type == "cuda" else {}
        )
        made |= {
            "bare loop, compiled": lambda: bare(network(), memory, device, dtype, is_compiled=True),
            "timm, compiled": partial(timm_loop, model, memory, device, dtype, is_compiled=True),
        }
    return made


def _started(name: str, make: Callable[[], Steps], device: torch.device) -> Steps | None:
    """Return a contender after its warm-up; None if it is not installed, or if it is a peer and fails."""
    try:
        contender = make()
        contender(1 if device.type == "cpu" else WARM_UP)
    except ImportError as error:
        print(f"{name} is left out: {error}", flush=True)
        return None
    except Exception as error:
        if name.startswith("ours"):
            raise
        print(f"{name} fails: {str(error).splitlines()[0]}", flush=True)
        return None
    return contender


def _measured(
    case: str, side: int, batch: int, found: dict[str, Steps], device: torch.device, quick: bool
) -> Iterator[dict]:
    laps = in_turns(found, device, 1 if quick else STEPS, 1 if quick else ROUNDS)
    rates = {name: [batch / lap for lap, _ in pairs] for name, pairs in laps.items()}
    host = {name: [issuing for _, issuing in pairs] for name, pairs in laps.items()}
    gpu = None if quick else gpu_of(device)
    for name, values in rates.items():
        work = Work(
            "resnet50",
            side,
            batch,
            "Mild" in name or "Composer" in name,
            name.startswith("ours") and "off" not in name,
        )
        known = (
            gpu
            and not name.endswith(("compiled", "not replayed"))
            and roofline.speed(gpu, work).images_per_second
        )
        yield {
            "case": f"{case}: {name}",
            "value": median(values),
            "unit": "images/s",
            "predicted": known or None,
            "note": f"{min(values):,.0f} to {max(values):,.0f}; host "
            f"{1e3 * median(host[name]):.1f} ms",
        }
    for name, peers in (
        ("ours, no methods", ("bare", "torchvision", "timm")),
        ("ours, Mild", ("timm, blurred", "Composer")),
    ):
        eager = [
            other
            for other in rates
            if other.startswith(peers)
            and "compiled" not in other
            and ("Mild" in name or "blurred" not in other)
        ]
        best = max(eager, key=lambda other: median(rates[other]), default="")
        ratios = [a / b for a, b in zip(rates[name], rates.get(best, []), strict=False)]
        if ratios:
            yield {
                "case": f"{case}: {name}, over the best eager",
                "value": median(ratios),
                "unit": f"x {best}",
            }
    if device.type == "cuda":
        used = torch.cuda.max_memory_allocated() / 1e9
        yield {"case": f"{case}: memory of all contenders", "value": used, "unit": "GB"}
        torch.cuda.reset_peak_memory_stats()
