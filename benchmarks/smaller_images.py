"""Compare training crops of images shrunk in memory with crops of full-size images.

    python benchmarks/smaller_images.py FOLDER [--sizes 176,128,88] [--memory 256,352,500]

FOLDER has class folders of images, or train/. Each training image, without those of an incomplete
last batch, is cropped once. The peak signal-to-noise ratio compares its pixels with a crop of the
fully decoded image, with the same random numbers. 0 px is the default, which decodes large crops at
a reduced size.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from resnet_recipes import data
from resnet_recipes.data.base import Batching, DataConfig, DataFacts

BATCH = 50


def read_crops(config: DataConfig, facts: DataFacts) -> np.ndarray:
    """Return one crop per image, without an incomplete last batch: uint8 [n, S, S, 3]."""
    with closing(data.open_train(config, facts, Batching(0, 1, BATCH, BATCH, seed=0))) as loader:
        batches = itertools.islice(loader.batches(), facts.train_examples // BATCH)
        # a batch is valid until the next one
        pixels = [batch.pixels.permute(0, 2, 3, 1).numpy().copy() for batch in batches]
    return np.concatenate(pixels)


def compute_psnr(pixels: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the ratio in dB for each crop [n]; infinite for equal pixels."""
    mean_squares = np.square(pixels.astype(float) - expected).mean(axis=(1, 2, 3))
    with np.errstate(divide="ignore"):
        return 10 * np.log10(255**2 / mean_squares)


def measure_rows(
    folder: Path, sizes: list[int], memories: list[int]
) -> Iterator[dict[str, object]]:
    """Yield a row for each size of crops and of images."""
    val_fraction = 0.0 if (folder / "val").is_dir() else 0.1
    base = DataConfig(root=str(folder), val_share=val_fraction, workers=1)
    facts = data.survey_images(base)
    for size in sizes:
        config = replace(base, train_size=size)
        expected = read_crops(replace(config, reduced_decode=False), facts)
        for pixels in (0, *memories):
            decibels = compute_psnr(
                read_crops(replace(config, memory_pixels=pixels), facts), expected
            )
            changed = decibels[np.isfinite(decibels)]
            low, middle = np.percentile(changed, (5, 50)) if len(changed) else (None, None)
            yield {
                "crop": size,
                "memory": pixels,
                "changed_percent": round(100 * len(changed) / len(decibels), 1),
                "median_db": middle and round(float(middle), 1),
                "low_db": low and round(float(low), 1),
            }


def main() -> None:
    """Compare every case, and write the rows to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="176,128,88", help="crop sizes, pixels")
    parser.add_argument("--memory", default="256,352,500", help="longer sides of images")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    sizes, memories = (
        [int(size) for size in text.split(",")] for text in (arguments.sizes, arguments.memory)
    )
    rows = []
    print("crop  memory  changed  median  5th percentile (dB, of changed crops)")
    for row in measure_rows(arguments.folder.absolute(), sizes, memories):
        rows.append(row)
        print(
            f"{row['crop']:4} {row['memory']:6}  {row['changed_percent']:6}%  {row['median_db']}  "
            f"{row['low_db']}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
