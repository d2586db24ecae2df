"""Training from JPEG files: the loader alone, and together with the step."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from session import recipe_of

from resnet_recipes import data
from resnet_recipes.base.cores import cores
from resnet_recipes.data import demo
from resnet_recipes.planning.plan import make_plan
from resnet_recipes.training import probe
from resnet_recipes.training.distributed import Rank


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield images per second on the demo's small synthetic images: many to decode, little to read."""
    if device.type == "cuda":
        torch.cuda.init()  # the memory of batches is pinned for a GPU that is in use
    with tempfile.TemporaryDirectory() as folder:
        batch = 4 if quick else 256
        root = demo.write(Path(folder) / "demo", train_images=2 if quick else 100, val_images=1)
        for side in (32,) if quick else (176, 88):
            recipe = recipe_of("mild", side, batch, quick)
            recipe = replace(recipe, data=replace(recipe.data, backend="auto", root=str(root)))
            facts = data.measure(recipe.data)
            plan, rank = make_plan(recipe, facts, 1), Rank(0, 0, 1, device)
            loader = probe._loader_rate(plan, rank, 1.0 if quick else 4.0)
            yield {
                "case": f"{side} px: loader alone",
                "value": loader,
                "unit": "images/s",
                "note": f"{facts.backend}, {cores()} cores",
            }
            trained = probe.end_to_end_rate(plan, rank, batch, 1.0 if quick else 6.0)
            yield {"case": f"{side} px: training from files", "value": trained, "unit": "images/s"}
