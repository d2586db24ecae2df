"""Estimate how much the choice of evaluation images adds to the uncertainty of a difference.

    resnet-recipes eval RUN --images FILE.csv          for each run
    python benchmarks/proof/image_bootstrap.py --first FILE.csv ... --second FILE.csv ...

All runs must use the same images. Their mean difference is computed for 2,000 sets of the same
size, sampled with replacement (bootstrap).
"""

import argparse
from pathlib import Path

import numpy as np
from table import read_rows

BOOTSTRAP_SAMPLES = 2000


def read_correct(path: Path) -> dict[str, bool]:
    """Return whether each image's class was predicted, by file."""
    return {row["path"]: row["label"] == row["prediction"] for row in read_rows(path)}


def compute_difference(first: list[Path], second: list[Path]) -> tuple[float, float]:
    """Return the mean difference of two groups of runs, and its error by images, in points."""
    groups = [[read_correct(path) for path in paths] for paths in (first, second)]
    files = sorted(groups[0][0])
    if any(sorted(run) != files for group in groups for run in group):
        raise SystemExit("the files list different images")
    means = [np.mean([[run[file] for file in files] for run in group], axis=0) for group in groups]
    points = 100 * (means[0] - means[1])
    samples = np.random.default_rng(0).integers(0, len(files), (BOOTSTRAP_SAMPLES, len(files)))
    return float(points.mean()), float(points[samples].mean(axis=1).std(ddof=1))


def main() -> None:
    """Print the difference and its standard error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=Path, nargs="+", required=True)
    parser.add_argument("--second", type=Path, nargs="+", required=True)
    arguments = parser.parse_args()
    points, error = compute_difference(arguments.first, arguments.second)
    print(f"{points:+.2f} points, standard error by images {error:.2f}")


if __name__ == "__main__":
    main()
