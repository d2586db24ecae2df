"""Training from JPEG files: the loader alone, and together with the step."""

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from faults import measure_or_report_fault
from PIL import Image
from runs import Steps, make_recipe, make_run, make_training_loop, time_steps

from resnet_recipes import data
from resnet_recipes.base.cores import count_cores
from resnet_recipes.data import demo
from resnet_recipes.data.stream import Stream
from resnet_recipes.training.run import Run

WARM_UP, STEPS = 12, 30
SIZE, NAMES = (500, 375), 20  # pixels of an ImageNet photograph; file names per image


def measure_rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield images per second on photograph-sized JPEGs in the page cache."""
    with tempfile.TemporaryDirectory() as folder:
        root = demo.write(Path(folder) / "demo", train_images=2 if quick else 50, val_images=1)
        make_photographs(root / "train", NAMES)
        for size in (32,) if quick else (176, 88):
            for case, kind in (
                ("loader alone", make_loading_loop),
                ("training from files", make_training_loop),
            ):
                text = f"{size} px: {case}"
                yield from measure_or_report_fault(text, _measure, kind, root, size, device, quick)


def _measure(
    kind: Callable[[Run], Steps], root: Path, size: int, device: torch.device, quick: bool
) -> Iterator[dict]:
    """Yield the row of one measurement at one size."""
    batch, count = (4, 2) if quick else (256, STEPS)
    recipe = make_recipe("mild", size, batch, quick)
    recipe = replace(recipe, data=replace(recipe.data, backend="auto", root=str(root)))
    facts = data.survey_images(recipe.data)
    run = make_run(recipe, device, True, facts)
    try:
        steps = kind(run)
        steps(WARM_UP)
        _, seconds = time_steps(steps, count, device)
    finally:
        run.train_data.close()
    note = f"{count_cores()} cores; {' '.join(note.text for note in facts.notes)}"
    yield {"value": count * batch / seconds, "unit": "images/s", "note": note}


def make_photographs(folder: Path, names: int) -> None:
    """Enlarge the images in a folder, add noise for 75 KB files, and link each several times."""
    for file in list(folder.rglob("*.jpg")):
        noise = Image.effect_noise(SIZE, 60).convert("RGB")
        Image.blend(Image.open(file).resize(SIZE), noise, 0.3).save(file, quality=85)
        for number in range(1, names):
            os.link(file, file.with_stem(f"{file.stem}-{number}"))


def make_loading_loop(run: Run) -> Steps:
    """Return the loader alone: it reads a number of batches, and copies them to the device."""
    batches = Stream(run.train_data.batches(), run.rank.device)
    return lambda count: deque(islice(batches, count), maxlen=0)
