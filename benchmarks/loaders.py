"""Measure loaders side by side: images per CPU-second, workers included.

    python benchmarks/loaders.py DATA [--sizes 88,128,176,224] [--json FILE]

DATA is a folder of class folders of JPEGs, or one with train/. Every loader runs in a process of its own with its own
workers; they take turns, and each round counts the CPU time of that process and all its descendants for the same number
of images, from idle to idle.
"""

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

BATCH = 50
TICKS = os.sysconf("SC_CLK_TCK")


class Setting(NamedTuple):
    """What a loader is asked for."""

    root: Path            # has train/ and val/, train.beton and val.beton
    pixels: int
    workers: int


def ours(setting: Setting, backend: str) -> Iterator:
    """Read with one of this package's backends."""
    from resnet_recipes import data
    from resnet_recipes.data.base import DataConfig, Share

    config = DataConfig(backend=backend, root=str(setting.root), train_size=setting.pixels, workers=setting.workers)
    return data.open_train(config, data.measure(config), Share(0, 1, BATCH, BATCH, seed=0)).batches()


def ours_normalized(setting: Setting) -> Iterator:
    """Read with the torchvision backend and normalise on the CPU too, which a run on a GPU does there."""
    import torch

    from resnet_recipes.data.normalize import normalize

    torch.set_num_threads(1)
    return (normalize(batch.pixels) for batch in ours(setting, "torchvision"))


def plain(setting: Setting) -> Iterator:
    """Read with torchvision's ImageFolder, PIL transforms and a DataLoader, as the usual example script does."""
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision import datasets, transforms

    transform = transforms.Compose([
        transforms.RandomResizedCrop(setting.pixels), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    folder = datasets.ImageFolder(str(setting.root / "train"), transform)
    return iter(DataLoader(folder, BATCH, sampler=RandomSampler(folder, replacement=True, num_samples=10**6),
                           num_workers=setting.workers, prefetch_factor=2))


def timm(setting: Setting) -> Iterator:
    """Read with timm's dataset, transforms and uint8 collation, before its prefetcher normalises on a GPU."""
    import torch
    from timm.data import create_dataset, create_loader

    class Endless(torch.utils.data.Dataset):
        """The same images again and again, so that an epoch never ends."""

        def __init__(self, images):
            self.images, self.transform = images, None

        def __len__(self) -> int:
            return 10**6

        def __getitem__(self, index: int):
            self.images.transform = self.transform
            return self.images[index % len(self.images)]

    images = create_dataset("", root=str(setting.root / "train"), is_training=True)
    loader = create_loader(Endless(images), (3, setting.pixels, setting.pixels), BATCH, is_training=True,
                           num_workers=setting.workers,
                           interpolation="bilinear", color_jitter=0.0, device=torch.device("cpu"), pin_memory=False)
    return iter(loader.loader)


def bare_ffcv(setting: Setting) -> Iterator:
    """Read with FFCV's own Loader and the pipeline of its ImageNet example, uint8 out."""
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

    pipelines = {
        "image": [RandomResizedCropRGBImageDecoder((setting.pixels, setting.pixels)), RandomHorizontalFlip(),
                  ToTensor(), ToTorchImage()],
        "label": [IntDecoder(), ToTensor(), Squeeze()],
    }
    loader = Loader(str(setting.root / "train.beton"), batch_size=BATCH, num_workers=setting.workers,
                    order=OrderOption.RANDOM,
                    os_cache=True, drop_last=True, pipelines=pipelines)
    return itertools.chain.from_iterable(itertools.repeat(loader))


LOADERS: dict[str, Callable[[Setting], Iterator]] = {
    "ours, torchvision backend": lambda setting: ours(setting, "torchvision"),
    "ours, normalised on the CPU": ours_normalized,
    "torchvision + PIL": plain,
    "timm": timm,
    "ours, ffcv backend": lambda setting: ours(setting, "ffcv"),
    "bare FFCV": bare_ffcv,
}

#: Which of ours is compared with which peer.
PAIRS = (
    ("ours, torchvision backend", "torchvision + PIL"),
    ("ours, normalised on the CPU", "torchvision + PIL"),
    ("ours, torchvision backend", "timm"),
    ("ours, ffcv backend", "bare FFCV"),
)
NEEDS = {"timm": "timm", "bare FFCV": "ffcv"}


def serve(name: str, setting: Setting) -> None:
    """Be the process of one loader: on every line of input read that many batches, and say so."""
    batches = LOADERS[name](setting)
    for line in sys.stdin:
        for _ in range(int(line)):
            next(batches)
        print("read", flush=True)


class Bench:
    """A loader in a process of its own."""

    def __init__(self, name: str, setting: Setting):
        command = [sys.executable, __file__, str(setting.root), "--serve", name, "--sizes", str(setting.pixels)]
        command += ["--workers", str(setting.workers)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         env=environment)
        self.rate(4)                               # start workers, compile, fill the page cache

    def rate(self, batches: int) -> float:
        """Read some batches; return images per CPU-second, with full queues before and after."""
        before = self._idle_seconds()
        self._process.stdin.write(f"{batches}\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise SystemExit("a loader has failed; its own message stands above")
        return batches * BATCH / (self._idle_seconds() - before)

    def close(self) -> None:
        """End the process and its workers."""
        self._process.kill()
        self._process.wait()

    def _idle_seconds(self) -> float:
        """Wait until nothing has run for a second; return the CPU seconds used so far."""
        seconds, quiet = cpu_seconds(self._process.pid), 0
        while quiet < 4:
            time.sleep(0.25)
            now = cpu_seconds(self._process.pid)
            seconds, quiet = now, quiet + 1 if now - seconds < 0.02 else 0
        return seconds


def cpu_seconds(root: int) -> float:
    """Return the CPU time of a process and of all its descendants, the ended ones that were waited for too."""
    parents, seconds = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(entry.name)
            parents[pid], seconds[pid] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS
    return sum(spent for pid, spent in seconds.items() if root in lineage(pid, parents))


def lineage(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """Yield a process and its ancestors."""
    while pid in parents:
        yield pid
        pid = parents[pid]


def measured(setting: Setting, names: list[str], rounds: int, batches: int) -> dict[str, list[float]]:
    """Return images per CPU-second by loader and round; the loaders take turns."""
    benches = {name: Bench(name, setting) for name in names}
    rates = {name: [] for name in names}
    for _, (name, bench) in itertools.product(range(rounds), benches.items()):
        rates[name].append(bench.rate(batches))
    for bench in benches.values():
        bench.close()
    return rates


def rows(pixels: int, rates: dict[str, list[float]]) -> Iterator[dict]:
    """Yield one comparison of ours with a peer after the other."""
    for our, peer in PAIRS:
        if our in rates and peer in rates:
            ratios = [a / b for a, b in zip(rates[our], rates[peer], strict=True)]
            yield {"case": f"{our} / {peer}, {pixels} px", "ours": round(statistics.median(rates[our]), 1),
                   "peer": round(statistics.median(rates[peer]), 1), "ratio": round(statistics.median(ratios), 3),
                   "low": round(min(ratios), 3), "high": round(max(ratios), 3), "unit": "images per CPU-second"}


def prepare(source: Path, root: Path, with_ffcv: bool) -> None:
    """Give `source` the layout of a data set: train and val are the same images, .beton files the default ones."""
    images = source / "train" if (source / "train").is_dir() else source
    for split in ("train", "val"):
        (root / split).symlink_to(images.resolve())
    if with_ffcv:
        from resnet_recipes.data.convert.encode import ConvertOptions
        from resnet_recipes.data.convert.run import convert

        convert(root, root, ConvertOptions(), lambda progress: None)


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sizes", default="88,128,176,224", help="sides of the training crop, pixels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=12, help=f"of {BATCH} images, in each round")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", help="loaders to measure, names separated by |; all, if not given")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    if args.serve:
        serve(args.serve, Setting(args.data, sizes[0], args.workers))
        return
    console = Console(width=None if sys.stdout.isatty() else 140)
    missing = {name for name, package in NEEDS.items() if importlib.util.find_spec(package) is None}
    for name in sorted(missing):
        console.print(f"left out: {name} ({NEEDS[name]} is not installed)")
    names = [name for name in LOADERS if name not in missing and (not args.only or name in args.only.split("|"))]
    table = Table("case", "ours", "peer", "ratio", "range", title="images per CPU-second, medians; ratio by round")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        prepare(args.data, Path(folder), with_ffcv="ours, ffcv backend" in names)
        for size in sizes:
            results += rows(size, measured(Setting(Path(folder), size, args.workers), names, args.rounds, args.batches))
    for row in results:
        span = f"{row['low']:.2f} to {row['high']:.2f}"
        table.add_row(row["case"], f"{row['ours']:.0f}", f"{row['peer']:.0f}", f"{row['ratio']:.2f}", span)
    console.print(table)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
