"""Measure RandAugment in the native engine and on a batch against Pillow, image by image: milliseconds per image.

    python benchmarks/randaugment.py [--size 176] [--batch 256] [--device cpu|cuda] [--json FILE]

All turn uint8 arrays into uint8 arrays, as a loader needs them. On a CPU, all are measured in CPU
time on one thread, in turns; the fastest round of each counts, since other work on the machine only
adds. The engine's time is what it takes beyond copying the images: a loader has decoded them into
that place. On a GPU, the batch is timed on the device. The images are synthetic but smooth, like
photographs; the cost of the operations hardly depends on them.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from resnet_recipes.base.duration import Horizon
from resnet_recipes.data.base import Step
from resnet_recipes.data.native.engine import Engine
from resnet_recipes.data.native.rows import ROW, put_steps
from resnet_recipes.methods.base import Now
from resnet_recipes.methods.image_ops import IMAGE_OPS, step
from resnet_recipes.methods.pixel_ops import PIXEL_OPS
from resnet_recipes.methods.randaugment import RandAugment


class InEngine:
    """The native engine with one thread, and images in memory for it."""

    def __init__(self, arrays: list[np.ndarray]):
        side = len(arrays[0])
        self._engine, self._arrays, self._pixels = (
            Engine(1),
            arrays,
            np.empty((len(arrays), side, side, 3), np.uint8),
        )
        self._rows = np.zeros(len(arrays), ROW)
        self._rows["data"] = [array.ctypes.data for array in arrays]
        self._rows["pixels"] = [pixels.ctypes.data for pixels in self._pixels]
        self._rows["length"], self._rows["box"], self._rows["raw"] = (
            arrays[0].size,
            (0, 0, side, side),
            True,
        )
        self._rows["side"] = self._rows["size"] = side

    def augment(self, steps: list[list[Step]]) -> None:
        """Copy the first images and apply the steps of each to its copy."""
        rows = self._rows[: len(steps)].copy()
        kept = put_steps(rows, steps)
        self._engine.wait(self._engine.submit(rows), 60)
        assert not rows["status"].any(), kept


def main() -> None:
    """Measure, print a table, and write it to a file if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=176)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options)
    title = f"RandAugment at {options.size} px, ms/image; the batch is on the {options.device}"
    table = Table(
        "case", "engine", "batch", "Pillow", "Pillow / engine", "Pillow / batch", title=title
    )
    for row in rows:
        times = [row[name] for name in ("engine", "batch", "Pillow")]
        ratios = [times[2] / one for one in times[:2]]
        table.add_row(
            row["case"], *(f"{one:.4f}" for one in times), *(f"{one:.2f}" for one in ratios)
        )
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def measure(options: argparse.Namespace) -> list[dict]:
    """Return one row for all operations together at depth 1, as in a run, and one for each operation."""
    images = [photograph(options.size, seed) for seed in range(options.batch)]
    stacked = torch.stack([torch.from_numpy(np.array(image)) for image in images]).to(
        options.device
    )
    pixels = stacked.permute(0, 3, 1, 2)
    batched, sampled = RandAugment(placement="batch"), RandAugment().augment_sample()
    rng = np.random.default_rng(0)
    now = Now(0, Horizon(1, 1), rng)
    arrays, room = (
        [np.array(image) for image in images],
        np.empty((options.size, options.size, 3), np.uint8),
    )
    engine = InEngine(arrays)

    def by_engine() -> None:
        engine.augment(
            [
                sampled.steps(options.size, np.random.default_rng((0, n)))
                for n in range(options.batch)
            ]
        )

    def by_pillow() -> None:
        for index, array in enumerate(arrays):
            room[:] = sampled(Image.fromarray(array), np.random.default_rng((0, index)))

    rows = [
        compare(
            "all, depth 1",
            {
                "engine": by_engine,
                "batch": lambda: batched.augment_pixels(pixels, now),
                "Pillow": by_pillow,
                "copy": lambda: engine.augment([[]] * options.batch),
            },
            options,
            options.batch,
        )
    ]
    few = min(options.batch, 24) if options.device == "cpu" else options.batch
    part = stacked[:few]
    for name, op in PIXEL_OPS.items():
        values = RandAugment().values(name, options.size, rng, few)
        on_device = torch.from_numpy(values.astype(np.float32)).to(options.device)
        # as many as RandAugment gives an operation at once
        size = 8 if options.device == "cpu" else few
        steps = [[step(name, value, options.size)] for value in values.tolist()]

        def on_batch(op=op, values=on_device, size=size) -> None:
            for some, value in zip(part.split(size), values.split(size), strict=True):
                op(some, value)

        def in_pillow(name=name, values=values) -> None:
            for array, value in zip(arrays, values, strict=False):
                room[:] = IMAGE_OPS[name](Image.fromarray(array), float(value))

        rows.append(
            compare(
                name,
                {
                    "engine": lambda steps=steps: engine.augment(steps),
                    "batch": on_batch,
                    "Pillow": in_pillow,
                    "copy": lambda: engine.augment([[]] * few),
                },
                options,
                few,
            )
        )
    return rows


def compare(
    case: str, works: dict[str, Callable[[], object]], options: argparse.Namespace, count: int
) -> dict:
    """Run all in turns and return the fastest time of each in ms for one image, the engine's without "copy"."""
    fastest = dict.fromkeys(works, float("inf"))
    for _ in range(options.rounds + 1):
        for name, work in works.items():
            took = seconds(work, options.device if name == "batch" else "cpu")
            fastest[name] = min(fastest[name], took / count * 1000)
    fastest["engine"] -= fastest.pop("copy")
    return {"case": case, **fastest, "unit": "ms/image"}


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
    return Image.fromarray(
        (shades + rng.integers(-6, 7, shades.shape)).clip(0, 255).astype(np.uint8)
    )


if __name__ == "__main__":
    main()
