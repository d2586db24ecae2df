"""Feed damaged JPEGs and .beton files to the native decoder, built with AddressSanitizer and UBSan.

    python tools/fuzz_native.py [--jpegs 20000] [--betons 2000] [--seed 0]

Half of the rows also have a small level, which is damaged, too; most of its checksums fit, so that
the decoder gets to see it. Every image is decoded twice, with different neighbours in the batch and
into memory with different contents. Its status and pixels must be the same both times: then no byte
is left unwritten, and none comes from another image. A sanitizer that finds something ends the
process with a report.
"""

import argparse
import io
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data import native
from resnet_recipes.data.beton import JPEG, Beton, half_path, open_beton
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.images.jpeg import frame_size
from resnet_recipes.data.native import PATH, Engine, library
from resnet_recipes.data.native.rows import BOX, CENTRE, SMALL, Status, blank_rows

SIDE = 33  # pixels: a line of them is no multiple of what vector instructions take
LEAST, MOST = 72, 140  # pixels of an original's side: its small level is wanted from 2 * SIDE on
BATCH_SECONDS = 60  # seconds for a batch of 100 small images, after which the decoder hangs


def build(folder: Path) -> Path:
    """Compile the library with both sanitizers, and with libjpeg-turbo inside.

    It has the Huffman decoder then.
    """
    made = folder / PATH.name
    flags = "-std=c++17 -O1 -g -fno-omit-frame-pointer -ffp-contract=off -fvisibility=hidden -fPIC"
    checks = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
    inside = "-DJPEG_INSIDE -l:libjpeg.a -Wl,--exclude-libs,ALL"
    sources = map(str, (PATH.parent / "src").glob("*.cpp"))
    command = f"g++ -shared -pthread {flags} {checks} -o".split()
    subprocess.run([*command, made, *sources, *inside.split()], check=True)
    return made


class Images(NamedTuple):
    """Images, each an allocation of exactly its bytes, so that reading past its end is noticed."""

    sources: list[np.ndarray]
    sizes: np.ndarray  # height, width [n, 2]
    raw: np.ndarray  # bool [n]

    def small(self, rng: np.random.Generator) -> np.ndarray:
        """Return SMALL [n]: these as small levels, while they live.

        Some with another checksum or size, or left out.
        """
        made = np.zeros(len(self.sources), SMALL)
        made["data"] = [source.ctypes.data for source in self.sources]
        made["length"] = list(map(len, self.sources))
        made["size"], made["raw"] = self.sizes, self.raw
        made["crc"] = [zlib.crc32(source) for source in self.sources]
        made["crc"][rng.random(len(made)) < 0.05] ^= 1
        made["size"][rng.random(len(made)) < 0.05] = rng.integers(1, MOST, 2)
        made["data"][rng.random(len(made)) < 0.5] = 0
        return made


def noise(rng: np.random.Generator) -> Image.Image:
    """Return an image of smooth noise, of random size."""
    width, height = (int(side) for side in rng.integers(LEAST, MOST, 2))
    return Image.fromarray(rng.integers(0, 256, (7, 7, 3), dtype=np.uint8)).resize(
        (width, height), Image.BICUBIC
    )


def jpegs(rng: np.random.Generator) -> list[np.ndarray]:
    """Return JPEGs of every kind that the decoder knows."""
    made = []
    for options in (
        {},
        {"progressive": True},
        {"subsampling": "4:4:4"},
        {"subsampling": "4:2:2"},
        {"restart_marker_rows": 1},
        {"restart_marker_blocks": 3},
        {"optimize": True},
        {"keep_rgb": True},
        {"progressive": True, "subsampling": "4:4:4"},
    ):
        for mode in ("RGB", "L") if "keep_rgb" not in options else ("RGB",):
            buffer = io.BytesIO()
            noise(rng).convert(mode).save(
                buffer, "JPEG", quality=int(rng.integers(20, 96)), **options
            )
            made.append(np.frombuffer(buffer.getvalue(), np.uint8))
    return made


def mutated(data: np.ndarray, rng: np.random.Generator, reach: int) -> np.ndarray:
    """Return a copy with one to four edits.

    Bytes or restart markers changed, or a piece cut, doubled or overwritten.

    At least half of them, on average, are in the first `reach` bytes; a restart marker may be
    anywhere.
    """
    data = data.copy()
    for _ in range(rng.integers(1, 5)):
        place = int(rng.integers(min(reach, len(data)) if rng.random() < 0.5 else len(data)))
        length = int(rng.integers(1, 40))
        match int(rng.integers(8)):
            case 0:
                data[place] = rng.integers(256)
            case 1:
                data[place] ^= 1 << int(rng.integers(8))
            case 2:
                data[place] = rng.choice([0, 1, 127, 128, 254, 255])
            case 3:
                data = np.delete(data, slice(place, place + length))
            case 4:
                data = np.concatenate([data[: place + length], data[place:]])
            case 5:
                data[place : place + length] = rng.integers(
                    0, 256, len(data[place : place + length])
                )
            case 6 | 7 as kind:
                there = np.flatnonzero((data[:-1] == 0xFF) & (data[1:] & 0xF8 == 0xD0))
                place = min(rng.choice(there) if len(there) else place, len(data) - 2)
                data[place : place + 2] = 0xFF, 0xD0 + rng.integers(8)
                data = np.delete(data, slice(place, place + 2)) if kind == 7 else data
    return data


def batch(sources: list[np.ndarray], columns: dict, fill: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows for images in memory, and the memory for their pixels, filled with `fill`."""
    rows = blank_rows(len(sources))
    pixels = np.full((len(sources), SIDE, SIDE, 3), fill, np.uint8)
    rows["data"] = [source.ctypes.data for source in sources]
    rows["length"] = [source.size for source in sources]
    rows["side"] = SIDE
    rows["pixels"] = pixels.ctypes.data + np.arange(len(sources)) * SIDE * SIDE * 3
    for name, column in columns.items():
        rows[name] = column
    return rows, pixels


def decoded_twice(engine: Engine, sources: list[np.ndarray], columns: dict) -> Iterator[Status]:
    """Yield the status of each image.

    Fail if it or the pixels depend on its neighbours or on what the memory held.
    """
    order = np.random.default_rng(len(sources)).permutation(len(sources))
    there = {name: np.asarray(column)[order] for name, column in columns.items()}
    rows, pixels = batch(sources, columns, 0)
    others, again = batch([sources[place] for place in order], there, 255)
    tickets = engine.submit(rows), engine.submit(others)
    if not all(engine.wait(ticket, BATCH_SECONDS) for ticket in tickets):
        raise SystemExit(
            f"an image takes more than {BATCH_SECONDS} s: "
            f"{np.flatnonzero(rows['status'] == Status.RUNNING)}"
        )
    assert np.array_equal(rows["status"][order], others["status"]), (
        "a status depends on an image's neighbours"
    )
    done = others["status"] == Status.DONE
    assert np.array_equal(pixels[order][done], again[done]), (
        "pixels depend on an image's neighbours, or some were never written"
    )
    yield from map(Status, rows["status"].tolist())


def fuzz_jpegs(engine: Engine, count: int, rng: np.random.Generator) -> Counter:
    """Decode mutated JPEGs, cropped to random boxes and as for evaluation."""
    originals, found = jpegs(rng), Counter()
    sizes = np.array([frame_size(original)[:2] for original in originals])

    def some() -> Images:
        """Return a hundred of them, each mutated in its own way, with their originals' sizes."""
        chosen = rng.integers(len(originals), size=100)
        return Images(
            [mutated(originals[number], rng, 700) for number in chosen],
            sizes[chosen],
            np.zeros(100, bool),
        )

    for _ in range(0, count, 100):
        images, halves, corner = some(), some(), rng.uniform(0, 20, (100, 2))
        small = halves.small(rng)
        has_small = small["data"][:, None] != 0
        rest = np.where(has_small, images.sizes[:, ::-1] - corner, rng.uniform(1, 60, (100, 2)))
        columns = {
            "geometry": rng.choice([BOX, CENTRE], 100),
            "resize": SIDE + rng.integers(0, 9, 100),
            "filter": rng.integers(0, 2, 100),
            "mirror": rng.random(100) < 0.5,
            "whole": rng.random(100) < 0.5,
            "box": np.concatenate([corner, rest], axis=1),
            "size": np.where(has_small, images.sizes, 0),
            "small": small,
        }
        found.update(decoded_twice(engine, images.sources, columns))
    return found


def fuzz_betons(engine: Engine, count: int, rng: np.random.Generator, folder: Path) -> Counter:
    """Open mutated .beton files of two levels, and decode those that are accepted."""
    for number in range(12):
        for split in ("train", "val"):
            path = folder / split / f"class{number % 2}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise(rng).save(path, quality=80)
    convert(folder, folder, ConvertOptions(workers=1, levels=2), lambda done, total: None)
    path, found = folder / "train.beton", Counter()
    for _ in range(count):
        beton, half = (opened(original, rng) for original in (path, half_path(path)))
        found["refused when opened"] += (beton is None) + (half is None)
        if beton is not None:
            images, halves = samples(beton), samples(half or beton)
            corner, share = np.zeros((len(beton), 2)), rng.choice([0.5, 1], (len(beton), 2))
            columns = {
                "size": images.sizes,
                "raw": images.raw,
                "box": np.concatenate(
                    [corner, np.maximum(images.sizes[:, ::-1] * share, 1)], axis=1
                ),
            }
            if half is not None and len(half) == len(beton):
                columns["small"] = halves.small(rng)
            found.update(decoded_twice(engine, images.sources, columns))
    return found


def opened(original: Path, rng: np.random.Generator) -> Beton | None:
    """Open a mutated copy of a .beton file, which has no sidecar; None if it is refused."""
    path = original.with_name(f"mutated.{original.name}")
    metadata = int(open_beton(original).starts.min())
    data = np.fromfile(original, np.uint8)
    mutated(data, rng, metadata if rng.random() < 0.5 else len(data)).tofile(path)
    try:
        return open_beton(path)
    except NotReadyError:
        return None


def samples(beton: Beton) -> Images:
    """Return the samples of a file."""
    return Images(
        [beton.sample(index).copy() for index in range(len(beton))],
        beton.sizes,
        beton.modes != JPEG,
    )


def main() -> None:
    """Build the library, restart with the sanitizers preloaded, and fuzz."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jpegs", type=int, default=20_000)
    parser.add_argument("--betons", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--library", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.library is None:
            sanitizer = subprocess.run(
                ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
            ).stdout.strip()
            environment = os.environ | {
                "LD_PRELOAD": sanitizer,
                "ASAN_OPTIONS": "detect_leaks=0",
                "UBSAN_OPTIONS": "print_stacktrace=1",
            }
            command = [
                sys.executable,
                __file__,
                *sys.argv[1:],
                "--library",
                str(build(Path(folder))),
            ]
            raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)
        native.library = lambda: library(args.library)
        began, rng = time.monotonic(), np.random.default_rng(args.seed)
        with closing(Engine(2)) as engine:
            print(f"{args.jpegs} JPEGs: {counts(fuzz_jpegs(engine, args.jpegs, rng))}", flush=True)
            print(
                f"{args.betons} .beton files: "
                f"{counts(fuzz_betons(engine, args.betons, rng, Path(folder)))}",
                flush=True,
            )
        print(f"nothing found in {time.monotonic() - began:.0f} s")


def counts(found: Counter) -> str:
    """Return the counts with their names, the highest first."""
    return ", ".join(
        f"{count} {getattr(kind, 'name', kind).lower()}" for kind, count in found.most_common()
    )


if __name__ == "__main__":
    main()
