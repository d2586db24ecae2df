"""Measure RandAugment on a batch against RandAugment with Pillow, image by image: milliseconds per image.

    python benchmarks/randaugment.py [--size 176] [--batch 256] [--device cpu|cuda] [--json FILE]

Both turn uint8 arrays into uint8 arrays, as a loader needs them. On a CPU, both are measured in CPU time on one thread,
in turns. On a GPU, the batch is timed on the device, and compared with Pillow on one CPU core. The images are synthetic
but smooth, like photographs; the cost of the operations hardly depends on them.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from resnet_recipes.duration import Horizon
from resnet_recipes.methods.base import Now
from resnet_recipes.methods.image_ops import IMAGE_OPS
from resnet_recipes.methods.randaugment import RandAugment
from resnet_recipes.ops.pixel_ops import PIXEL_OPS


def main() -> None:
    """Measure, print a table, and write it to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=176)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options)
    title = f"RandAugment at {options.size} px on the {options.device}"
    table = Table("case", "batch, ms/image", "Pillow, ms/image", "Pillow / batch", title=title)
    for row in rows:
        table.add_row(row["case"], f"{row['ours']:.4f}", f"{row['peer']:.4f}", f"{row['ratio']:.2f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def measure(options: argparse.Namespace) -> list[dict]:
    """Return one row for all operations together at depth 1, as in a run, and one for each operation."""
    images = [photograph(options.size, seed) for seed in range(options.batch)]
    stacked = torch.stack([torch.from_numpy(np.array(image)) for image in images]).to(options.device)
    pixels = stacked.permute(0, 3, 1, 2)
    batched, sampled = RandAugment(placement="batch"), RandAugment().augment_sample()
    rng = np.random.default_rng(0)
    now = Now(0, Horizon(1, 1), rng)
    arrays, room = [np.array(image) for image in images], np.empty((options.size, options.size, 3), np.uint8)

    def one_by_one() -> None:
        for index, array in enumerate(arrays):
            room[:] = sampled(Image.fromarray(array), np.random.default_rng((0, index)))

    rows = [compare("all, depth 1", lambda: batched.augment_pixels(pixels, now), one_by_one, options)]
    few = min(options.batch, 24) if options.device == "cpu" else options.batch
    part = stacked[:few]
    for name, op in PIXEL_OPS.items():
        values = RandAugment().values(name, options.size, rng, few)
        on_device = torch.from_numpy(values.astype(np.float32)).to(options.device)
        size = 8 if options.device == "cpu" else few      # as many as RandAugment gives an operation at once

        def ours(op=op, values=on_device, size=size) -> None:
            for some, value in zip(part.split(size), values.split(size), strict=True):
                op(some, value)

        def peer(name=name, values=values) -> None:
            for array, value in zip(arrays, values, strict=False):
                room[:] = IMAGE_OPS[name](Image.fromarray(array), float(value))

        rows.append(compare(name, ours, peer, options, count=few))
    return rows


def compare(case: str, ours: Callable[[], object], peer: Callable[[], object], options: argparse.Namespace,
            count: int = 0) -> dict:
    """Run both in turns and return the medians of their times in milliseconds for one image."""
    count = count or options.batch
    times: list[tuple[float, float]] = []
    for _ in range(options.rounds + 1):
        times.append((seconds(ours, options.device), seconds(peer, "cpu")))
    mine, theirs = (statistics.median(column) / count * 1000 for column in zip(*times[1:], strict=True))
    ratio = statistics.median(theirs_once / mine_once for mine_once, theirs_once in times[1:])
    return {"case": case, "ours": mine, "peer": theirs, "ratio": ratio, "unit": "ms/image"}


def seconds(work: Callable[[], object], device: str) -> float:
    """Return the seconds that `work` takes: CPU time, or until the device has finished."""
    if device == "cpu":
        start = time.process_time()
        work()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def photograph(side: int, seed: int) -> Image.Image:
    """Return a smooth image with some noise."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    shades = np.asarray(small.resize((side, side), Image.Resampling.BICUBIC), dtype=np.int16)
    return Image.fromarray((shades + rng.integers(-6, 7, shades.shape)).clip(0, 255).astype(np.uint8))


if __name__ == "__main__":
    main()
