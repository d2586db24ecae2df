"""Training from JPEG files: the loader alone, and together with the step."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from session import recipe_of

from resnet_recipes import data
from resnet_recipes.base.cores import cores
from resnet_recipes.data import demo
from resnet_recipes.planning import plan as planning
from resnet_recipes.training import probe
from resnet_recipes.training.distributed import Rank


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield images per second on the demo's small synthetic images: many to decode, little to read.

    JPEGs are decoded by the CPU and, on a GPU, by nvJPEG: the ratio shows what nvJPEG gains on a
    machine with that many cores.
    """
    decoders = ("cpu", "gpu") if device.type == "cuda" else ("cpu",)
    if device.type == "cuda":
        torch.cuda.init()  # batches are decoded, and their memory pinned, for a GPU that is in use
    else:
        print("decoding by nvJPEG is left out: there is no GPU", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        batch = 4 if quick else 256
        root = demo.write(Path(folder) / "demo", train_images=2 if quick else 100, val_images=1)
        for side, decode in product((32,) if quick else (176, 88), decoders):
            recipe = recipe_of("mild", side, batch, quick)
            recipe = replace(
                recipe, data=replace(recipe.data, backend="auto", root=str(root), decode=decode)
            )
            facts = data.measure(recipe.data)
            plan, rank = planning.of(recipe, facts, 1), Rank(0, 0, 1, device)
            case = f"{side} px, JPEGs by the {decode.upper()}"
            loader = probe._loader_rate(plan, rank, 1.0 if quick else 4.0)
            yield {
                "case": f"{case}: loader alone",
                "value": loader,
                "unit": "images/s",
                "note": f"{facts.backend}, {cores()} cores",
            }
            trained = probe._together(plan, rank, batch, 1.0 if quick else 6.0)
            yield {"case": f"{case}: training from files", "value": trained, "unit": "images/s"}
