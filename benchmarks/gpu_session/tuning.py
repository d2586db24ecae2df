"""What cuDNN's search for its fastest algorithms costs at a new image size, and how much it gains."""

import time
from collections.abc import Iterator
from statistics import median

import torch
from session import Counting, in_turns, recipe_of, run_of

from resnet_recipes.doctor.rates import settle
from resnet_recipes.training.loop import train
from resnet_recipes.training.tuning import Tuning


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield seconds of the first step and images per second, without and with the search."""
    for side, batch in ((32, 4),) if quick else ((176, 256), (88, 256)):
        rates = {}
        for search in (False, True):
            run, done = run_of(recipe_of("mild", side, batch, quick), device), 0
            run.tuning = Tuning([side] if search else [])
            # Torch keeps the algorithms that a shape began with, so none would be searched for. It
            # keeps them by this flag, too, which has no effect in bf16 and fp16.
            torch.backends.cudnn.allow_tf32 = not search
            began = time.perf_counter()
            done = train(run, Counting(1), done)
            settle(device)
            name = f"{side} px, {batch}, {'searched' if search else 'heuristics'}"
            yield {"case": f"{name}: first step", "value": time.perf_counter() - began, "unit": "s"}
            state = [train(run, Counting(1 if quick else 8), done)]

            def go(steps: int, run: object = run, state: list = state) -> None:
                state[0] = train(run, Counting(steps), state[0])

            laps = in_turns({"ours": go}, device, 1 if quick else 10, 1 if quick else 3)["ours"]
            rates[search] = median(batch / lap for lap, _ in laps)
            torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = True, False
            yield {"case": name, "value": rates[search], "unit": "images/s"}
        yield {
            "case": f"{side} px, {batch}: gain of the search",
            "value": rates[True] / rates[False],
            "unit": "x",
        }
