"""Compare loaders by images per CPU-second, with workers.

    python benchmarks/loaders DATA [--sizes 176,88] [--json FILE]

DATA is a folder of class folders of JPEGs, or a folder with train/. Every loader runs in a separate
process with its own workers. Loaders take turns. Each round counts the CPU time of that process and
all its descendants for the same number of images, from idle to idle.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loader_list import BATCH, LOADERS, PAIRS, LoaderInput, find_missing_packages
from loader_process import LoaderProcess

from resnet_recipes.data.beton import open_beton
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions


def measure(
    inputs: LoaderInput, names: list[str], rounds: int, batches: int
) -> dict[str, list[float]]:
    """Return images per CPU-second by loader and round; the loaders take turns."""
    processes = {name: LoaderProcess(name, inputs) for name in names}
    turns = [
        {name: process.measure_rate(batches) for name, process in processes.items()}
        for _ in range(rounds)
    ]
    for process in processes.values():
        process.close()
    return {name: [turn[name] for turn in turns] for name in names}


def compare_rates(pixels: int, rates: dict[str, list[float]]) -> Iterator[dict]:
    """Yield a row for each of our loaders and each of its peers.

    A row has the medians of their series, and of their ratios by round.
    """
    for our, peer in PAIRS:
        if our in rates and peer in rates:
            ratios = [a / b for a, b in zip(rates[our], rates[peer], strict=True)]
            yield {
                "case": f"{our} / {peer}, {pixels} px",
                "ours": round(statistics.median(rates[our]), 2),
                "peer": round(statistics.median(rates[peer]), 2),
                "ratio": round(statistics.median(ratios), 3),
                "low": round(min(ratios), 3),
                "high": round(max(ratios), 3),
                "unit": "images per CPU-second",
            }


def prepare(source: Path, root: Path, names: list[str]) -> Iterator[str]:
    """Link `source` into `root` as train and val, write .beton files, and yield notes on sizes.

    Some images in "equal" are stored as raw pixels, so that it is as large as both files of
    "levels" together.
    """

    def write_beton(name: str, **options) -> int:
        files = convert(root, root / name, ConvertOptions(**options), lambda *_: None)
        return sum(file.stat().st_size for file in files if file.name.startswith("train"))

    images = source / "train" if (source / "train").is_dir() else source
    for split in ("train", "val"):
        (root / split).symlink_to(images.resolve())
    if any("raw" in name for name in names):
        size = write_beton("raw", write_mode="raw", max_resolution=352)
        yield f"raw at 352 px: {size / 1e6:.1f} MB"
    if any(name == ".beton" or name == "bare FFCV" for name in names):
        yield f"train.beton: {write_beton('default') / 1e6:.1f} MB"
    if any("levels" in name or "size" in name for name in names):
        both = write_beton("levels", write_mode="jpg", levels=2)
        jpegs = write_beton("jpegs", compress_probability=1.0)
        raw = 3 * int(open_beton(root / "jpegs" / "train.beton").sizes.prod(axis=1).sum())
        equal = write_beton(
            "equal", compress_probability=1 - max(0.0, (both - jpegs) / (raw - jpegs))
        )
        yield f"levels=2: {both / 1e6:.1f} MB; FFCV's file of that size: {equal / 1e6:.1f} MB"


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sizes", default="176,88", help="training crop sizes, pixels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=8, help=f"of {BATCH} images, in each round")
    parser.add_argument(
        "--only", help="loaders to measure, names separated by |; all, if not inputs"
    )
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    missing = find_missing_packages()
    for name, package in missing.items():
        print(f"skipped: {name} ({package} is not installed)")
    names = [
        name
        for name in LOADERS
        if name not in missing and (not arguments.only or name in arguments.only.split("|"))
    ]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for note in prepare(arguments.data, Path(folder), names):
            print(note, flush=True)
        for size in map(int, arguments.sizes.split(",")):
            inputs = LoaderInput(Path(folder), size)
            results += compare_rates(
                size, measure(inputs, names, arguments.rounds, arguments.batches)
            )
    print(f"{'images per CPU-second, medians':<60}{'ours':>7}{'peer':>7}{'ratio':>8}, by round")
    for one in results:
        ratio = f"{one['ratio']:8.2f}, {one['low']:.2f} to {one['high']:.2f}"
        print(f"{one['case']:<60}{one['ours']:>7.0f}{one['peer']:>7.0f}{ratio}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
