"""Compare a plan's loading predictions with actual loader times.

    python benchmarks/loader_predictions.py FOLDER ... [--sizes 176,88] [--memory 352]

Each FOLDER has class folders of images, or train/. For each crop size and storage, it shows the
plan's prediction from 48 images and the CPU time of loading complete epochs with one thread. With
files the last of two epochs is used, with pixels in memory the first and the last of three.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from resnet_recipes import data
from resnet_recipes.data.base import Batching, DataConfig
from resnet_recipes.data.sample import Sample

BATCH = 50


def measure_epochs(config: DataConfig, facts: data.DataFacts, count: int) -> list[float]:
    """Return the CPU seconds per image in each of `count` epochs."""
    steps = facts.train_examples // BATCH
    seconds_per_image = []
    with closing(data.open_train(config, facts, Batching(0, 1, BATCH, BATCH, seed=0))) as loader:
        batches = loader.batches()
        next(batches)
        for _ in range(count):
            start = time.process_time()
            for _ in itertools.islice(batches, steps):
                pass
            seconds_per_image.append((time.process_time() - start) / (steps * BATCH))
    return seconds_per_image


def measure_rows(folder: Path, sizes: list[int], memory: int) -> Iterator[dict[str, object]]:
    """Yield the predictions and measurements for a folder."""
    val_fraction = 0.0 if (folder / "val").is_dir() else 0.1
    base = DataConfig(root=str(folder), val_share=val_fraction, workers=1, prefetch=1)
    facts = data.survey_images(base)
    sample = Sample.of(facts)
    for size, pixels in itertools.product(sizes, (0, memory)):
        config = replace(base, train_size=size, memory_pixels=pixels)
        first, later = sample.crop_seconds(config, None, size)
        measured = measure_epochs(config, facts, 3 if pixels else 2)
        epochs = {"later": (later, measured[-1])}
        if pixels:
            epochs["first epoch"] = first, measured[0]
        for epoch, (expected, seconds) in epochs.items():
            storage = f"memory at {pixels} px, {epoch}" if pixels else "files"
            yield {
                "case": f"{folder.name}, {size} px, {storage}",
                "predicted": round(1 / expected),
                "measured": round(1 / seconds),
                "error_percent": round(100 * (seconds / expected - 1), 1),
            }


def main() -> None:
    """Measure every case, and write the rows to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--sizes", default="176,88", help="crop sizes, pixels")
    parser.add_argument("--memory", type=int, default=352, help="longer side of images in memory")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    rows = []
    print(f"{'images per CPU-second':<56}{'predicted':>10}{'measured':>10}{'error':>9}")
    for folder in arguments.folders:
        for row in measure_rows(folder.absolute(), sizes, arguments.memory):
            rows.append(row)
            print(
                f"{row['case']:<56}{row['predicted']:>10,}{row['measured']:>10,}"
                f"{row['error_percent']:>+8.1f}%",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
