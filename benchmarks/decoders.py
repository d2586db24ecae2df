"""Measure JPEG decoders as used by a loader: in several worker processes at once.

    python benchmarks/decoders.py DATA [--workers 2] [--json FILE]

DATA is any folder with JPEGs below it. All workers run the same decoder at the same time, decoders
take turns, and every decoder's pixels are compared with Pillow's. A ranking on a single thread
would mislead: with several workers, memory bandwidth and caches matter as well.
"""

import argparse
import io
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table


def pillow(data: bytes) -> np.ndarray:
    """Decode with Pillow."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def pillow_draft(data: bytes) -> np.ndarray:
    """Decode with Pillow at half the size."""
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (image.width // 2, image.height // 2))
    return np.asarray(image.convert("RGB"))


def simplejpeg(data: bytes) -> np.ndarray:
    """Decode with simplejpeg."""
    import simplejpeg

    return simplejpeg.decode_jpeg(data, strict=False)


def simplejpeg_fast(data: bytes) -> np.ndarray:
    """Decode with simplejpeg's faster, less exact transforms."""
    import simplejpeg

    return simplejpeg.decode_jpeg(data, strict=False, fastdct=True, fastupsample=True)


def opencv(data: bytes) -> np.ndarray:
    """Decode with OpenCV."""
    import cv2

    cv2.setNumThreads(0)
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)


def torchcodec(data: bytes) -> np.ndarray:
    """Decode with TorchCodec."""
    from torchcodec.decoders import decode_jpeg

    return decode_jpeg(data).permute(1, 2, 0).numpy()


def ours(data: bytes) -> np.ndarray:
    """Decode the whole image with this package's adapter."""
    from resnet_recipes.data.images.decode import Picture

    picture = Picture(data)
    return picture.crop(0, 0, picture.height, picture.width)


def ours_cropped(data: bytes) -> np.ndarray:
    """Decode the upper 70 % of the image for 176 pixels, which is about what a training crop needs."""
    from resnet_recipes.data.images.decode import Picture

    picture = Picture(data)
    return picture.resized_crop(0, 0, int(0.7 * picture.height), int(0.7 * picture.width), 176)


DECODERS: dict[str, Callable[[bytes], np.ndarray]] = {
    "Pillow": pillow,
    "Pillow, draft 1/2": pillow_draft,
    "simplejpeg": simplejpeg,
    "simplejpeg, fast and inexact": simplejpeg_fast,
    "OpenCV": opencv,
    "TorchCodec": torchcodec,
    "ours": ours,
    "ours, 70 % crop at 176 px": ours_cropped,
}

_files: list[bytes] = []


def load(paths: list[Path]) -> None:
    """Load a worker's files into memory, so that the disk is not measured."""
    _files.extend(path.read_bytes() for path in paths)


def rate(name: str) -> float:
    """Decode all files once; return images per CPU-second of this worker, nan if the decoder is not installed."""
    decoder = DECODERS[name]
    try:
        decoder(_files[0])
    except ImportError:
        return float("nan")
    began = time.process_time()
    for data in _files:
        decoder(data)
    return len(_files) / (time.process_time() - began)


def difference(name: str, data: list[bytes]) -> str:
    """Return the largest and the mean difference from Pillow's pixels, in levels of 255."""
    pairs = [(DECODERS[name](item).astype(np.int16), pillow(item)) for item in data]
    if any(one.shape != other.shape for one, other in pairs):
        return "another size"
    apart = [np.abs(one - other) for one, other in pairs]
    return f"{max(item.max() for item in apart)} / {np.mean([item.mean() for item in apart]):.2f}"


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    args = parser.parse_args()
    paths = sorted(
        path for path in args.data.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")
    )[: args.images]
    rates: dict[str, list[float]] = {name: [] for name in DECODERS}
    with multiprocessing.get_context("spawn").Pool(args.workers, load, (paths,)) as pool:
        for _ in range(args.rounds):
            for name in DECODERS:
                rates[name].append(
                    statistics.mean(pool.map(rate, [name] * args.workers, chunksize=1))
                )
    table = Table(
        "decoder",
        "images per CPU-second",
        "ratio to Pillow",
        "range",
        "max / mean difference",
        title=f"{len(paths)} JPEGs, {args.workers} workers, median of {args.rounds} rounds",
    )
    rows, sample = [], [path.read_bytes() for path in paths[:40]]
    for name, values in rates.items():
        if np.isnan(values).any():
            table.add_row(name, "not installed")
            continue
        ratios = [ours / theirs for ours, theirs in zip(values, rates["Pillow"], strict=True)]
        row = {
            "case": name,
            "ours": round(statistics.median(values), 1),
            "peer": round(statistics.median(rates["Pillow"]), 1),
            "ratio": round(statistics.median(ratios), 3),
            "unit": "images per CPU-second",
        }
        rows.append(row)
        span = f"{min(ratios):.2f} to {max(ratios):.2f}"
        table.add_row(
            name, f"{row['ours']:.0f}", f"{row['ratio']:.2f}", span, difference(name, sample)
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
