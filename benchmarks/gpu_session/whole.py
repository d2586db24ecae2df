"""Training from JPEG files: the loader alone, and together with the step."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from PIL import Image
from session import Counting, recipe_of, run_from
from verdict import tried

from resnet_recipes import data
from resnet_recipes.base.cores import cores
from resnet_recipes.data import demo
from resnet_recipes.data.stream import Stream
from resnet_recipes.doctor.rates import settle
from resnet_recipes.training.loop import train
from resnet_recipes.training.run import Run

WARM_UP, STEPS = 12, 30
SIZE, NAMES = (500, 375), 20  # pixels of a photograph of ImageNet; file names of each


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield images per second on JPEGs of the size of photographs, in memory once read."""
    with tempfile.TemporaryDirectory() as folder:
        root = demo.write(Path(folder) / "demo", train_images=2 if quick else 50, val_images=1)
        photograph(root / "train", NAMES)
        for side in (32,) if quick else (176, 88):
            for case, measure in (("loader alone", loaded), ("training from files", trained)):
                rate = partial(_measured, measure, root, side, device, quick)
                yield from tried(f"{side} px: {case}", rate)


def _measured(
    measure: Callable[[Run, int], float], root: Path, side: int, device: torch.device, quick: bool
) -> Iterator[dict]:
    """Yield the row of one measurement at one size."""
    batch, steps = (4, 2) if quick else (256, STEPS)
    recipe = recipe_of("mild", side, batch, quick)
    recipe = replace(recipe, data=replace(recipe.data, backend="auto", root=str(root)))
    facts = data.measure(recipe.data)
    run = run_from(recipe, facts, device)
    try:
        rate = batch / measure(run, steps)
    finally:
        run.train_data.close()
    note = f"{cores()} cores; {' '.join(facts.notes)}"
    yield {"value": rate, "unit": "images/s", "note": note}


def photograph(folder: Path, names: int) -> None:
    """Enlarge the images in a folder, with noise to make files of 75 KB; give each more names."""
    for file in list(folder.rglob("*.jpg")):
        noise = Image.effect_noise(SIZE, 60).convert("RGB")
        Image.blend(Image.open(file).resize(SIZE), noise, 0.3).save(file, quality=85)
        for number in range(1, names):
            os.link(file, file.with_stem(f"{file.stem}-{number}"))


def loaded(run: Run, steps: int) -> float:
    """Return the seconds per batch of the loader alone, copies to the device included."""
    batches = Stream(run.train_data.batches(), run.rank.device)
    for _ in islice(batches, WARM_UP):
        pass
    return _seconds(lambda: sum(1 for _ in islice(batches, steps)), steps, run)


def trained(run: Run, steps: int) -> float:
    """Return the seconds per step of training from files."""
    done = train(run, Counting(WARM_UP))
    return _seconds(lambda: train(run, Counting(steps), done), steps, run)


def _seconds(work: Callable[[], object], steps: int, run: Run) -> float:
    settle(run.rank.device)
    began = time.perf_counter()
    work()
    settle(run.rank.device)
    return (time.perf_counter() - began) / steps
