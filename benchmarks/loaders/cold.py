"""Loaders whose files are not in the page cache, compared with the same loaders whose files are."""

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench import AHEAD, Bench
from cases import BATCH, Setting

Pair = tuple[float, float]


def rates(setting: Setting, names: list[str], rounds: int, batches: int) -> dict[str, list[Pair]]:
    """Return images per worker-second by loader and round, cold and warm; the loaders take turns.

    No loader reads an image twice: pages of a mapped file cannot be dropped once they have been
    read.
    """
    files = list(stored(setting.root))
    needed = BATCH * (10 + 2 * rounds * (AHEAD + batches))
    if len(files) < needed:
        raise SystemExit(
            f"--cold with these --rounds and --batches needs {needed:,} images: DATA has "
            f"{len(files):,}"
        )
    benches = {name: Bench(name, setting) for name in names}
    found: dict[str, list[Pair]] = {name: [] for name in names}
    for _, (name, bench) in itertools.product(range(rounds), benches.items()):
        bench.wait_until_idle()
        drop(files)
        cold = bench.worker_rate(batches)
        for file in files:
            file.read_bytes()
        found[name].append((cold, bench.worker_rate(batches)))
    for bench in benches.values():
        bench.close()
    return found


def stored(root: Path) -> Iterator[Path]:
    """Yield the files that loaders read from `root`."""
    yield from (file for file in (root / "train").resolve().rglob("*") if file.is_file())
    yield from root.glob("*.beton")


def drop(files: Iterable[Path]) -> None:
    """Drop files from the page cache."""
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())  # what is not on the disk yet would stay
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
