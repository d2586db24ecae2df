"""Feed damaged JPEGs and .beton files to the native decoder, built with AddressSanitizer and UBSan.

    python -m tools.fuzz_native [--jpegs 20000] [--betons 2000] [--seed 0]

Half of the rows also have a damaged small level; most of its checksums match, so that the decoder
reads it. Every image is decoded twice, with different neighbors in the batch and into memory with
different contents. Its status and pixels must be the same both times, so that every byte is written
and none comes from another image. If a sanitizer finds an error, it ends the process with a report.
"""

import argparse
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
from resnet_recipes.data.beton import JPEG, Beton, get_half_path, open_beton
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.images.jpeg import read_frame_size
from resnet_recipes.data.native import PATH, NativeDecoder, load_library
from resnet_recipes.data.native.rows import BOX, CENTER, SMALL, Status
from tests.data.native.batch import JPEGS, Batch
from tests.shared.images import encode_image, make_photo

SANITIZED_LIBRARY = Path(__file__).parents[1] / "build" / "sanitized" / PATH.name
SIZE = 33  # pixels; a line is not a multiple of the vector size
MIN_SIZE, MAX_SIZE = 72, 140  # original sizes, px; the small level is used from 2 * SIZE on
BATCH_SECONDS = 60  # seconds; a decoder that takes longer for 100 small images hangs


def build() -> None:
    """Compile the library with both sanitizers, and with libjpeg-turbo linked statically.

    This enables its Huffman decoder.
    """
    SANITIZED_LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    flags = "-std=c++17 -O1 -g -fno-omit-frame-pointer -ffp-contract=off -fvisibility=hidden -fPIC"
    checks = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
    inside = "-DJPEG_INSIDE -l:libjpeg.a -Wl,--exclude-libs,ALL"
    sources = map(str, (PATH.parent / "src").glob("*.cpp"))
    command = f"g++ -shared -pthread {flags} {checks} -o".split()
    subprocess.run([*command, SANITIZED_LIBRARY, *sources, *inside.split()], check=True)


class Images(NamedTuple):
    """Images, each allocated with its exact size, so that reads past the end are detected."""

    sources: list[np.ndarray]
    sizes: np.ndarray  # height, width [n, 2]
    raw: np.ndarray  # bool [n]

    def make_small_levels(self, rng: np.random.Generator) -> np.ndarray:
        """Return SMALL [n]: these images as small levels, valid while this object lives.

        Some have another checksum or size, or are omitted.
        """
        pointers = np.zeros(len(self.sources), SMALL)
        pointers["data"] = [source.ctypes.data for source in self.sources]
        pointers["length"] = list(map(len, self.sources))
        pointers["size"], pointers["raw"] = self.sizes, self.raw
        pointers["crc"] = [zlib.crc32(source) for source in self.sources]
        pointers["crc"][rng.random(len(pointers)) < 0.05] ^= 1
        pointers["size"][rng.random(len(pointers)) < 0.05] = rng.integers(1, MAX_SIZE, 2)
        pointers["data"][rng.random(len(pointers)) < 0.5] = 0
        return pointers


def make_picture(rng: np.random.Generator) -> Image.Image:
    """Return an image of random size."""
    return make_photo(int(rng.integers(1 << 32)), *rng.integers(MIN_SIZE, MAX_SIZE, 2).tolist())


def make_jpegs(rng: np.random.Generator) -> list[np.ndarray]:
    """Return JPEGs of every kind that the decoder supports, in color and grayscale."""
    kinds = *JPEGS.values(), {"progressive": True, "subsampling": "4:4:4"}
    return [
        np.frombuffer(
            encode_image(make_picture(rng).convert(mode), quality=quality, **options), np.uint8
        )
        for options in kinds
        for mode, quality in zip(("RGB", "L"), rng.integers(20, 96, 2).tolist(), strict=True)
    ]


def mutate(data: np.ndarray, rng: np.random.Generator, header_bytes: int) -> np.ndarray:
    """Return a copy with one to four edits.

    An edit changes bytes or restart markers, or cuts, duplicates or overwrites a piece. On average
    at least half of the edits are in the first `header_bytes`; a restart marker may be anywhere.
    """
    for _ in range(rng.integers(1, 5)):
        start = int(rng.integers(min(header_bytes, len(data)) if rng.random() < 0.5 else len(data)))
        kind = rng.integers(8)
        length = rng.integers(1, 40)
        markers = np.flatnonzero((data[:-1] == 0xFF) & (data[1:] & 0xF8 == 0xD0))
        if kind > 5:
            start = rng.choice(markers) if len(markers) else start
            length = 2
        elif kind < 3:
            length = 1
        piece = data[start : start + length]
        replacements = (
            rng.integers(0, 256, 1),
            piece ^ (1 << rng.integers(8)),
            rng.choice([0, 1, 127, 128, 254, 255], 1),
            piece[:0],
            np.tile(piece, 2),
            rng.integers(0, 256, len(piece)),
            (0xFF, 0xD0 + rng.integers(8)),
            piece[:0],
        )[kind]
        data = np.concatenate([data[:start], replacements, data[start + length :]]).astype(np.uint8)
    return data


def decode_twice(
    decoder: NativeDecoder, sources: list[np.ndarray], columns: dict
) -> Iterator[Status]:
    """Yield the status of each image.

    Fails if the status or pixels depend on neighbors or on previous memory contents.
    """
    order = np.random.default_rng(len(sources)).permutation(len(sources))
    reordered = {name: np.asarray(column)[order] for name, column in columns.items()}
    once = Batch(sources, SIZE, **columns)
    again = Batch([sources[index] for index in order], SIZE, **reordered)
    again.pixels.fill(255)
    tickets = decoder.submit(once.rows), decoder.submit(again.rows)
    status = once.rows["status"]
    if not all(decoder.wait(ticket, BATCH_SECONDS) for ticket in tickets):
        slow = np.flatnonzero(status == Status.RUNNING)
        raise SystemExit(f"an image takes more than {BATCH_SECONDS} s: {slow}")
    assert np.array_equal(status[order], again.rows["status"]), (
        "a status depends on an image's neighbors"
    )
    done = again.rows["status"] == Status.DONE
    assert np.array_equal(once.pixels[order][done], again.pixels[done]), (
        "pixels depend on an image's neighbors, or some were never written"
    )
    yield from map(Status, status.tolist())


def fuzz_jpegs(decoder: NativeDecoder, count: int, rng: np.random.Generator) -> Counter:
    """Decode mutated JPEGs, cropped to random boxes and as for evaluation."""
    originals = make_jpegs(rng)
    counts = Counter()
    sizes = np.array([read_frame_size(original)[:2] for original in originals])

    def make_images() -> Images:
        """Return a hundred differently mutated JPEGs, with the sizes of the originals."""
        chosen = rng.integers(len(originals), size=100)
        sources = [mutate(originals[number], rng, 700) for number in chosen]
        return Images(sources, sizes[chosen], np.zeros(100, bool))

    for _ in range(0, count, 100):
        images = make_images()
        halves = make_images()
        corner = rng.uniform(0, 20, (100, 2))
        small = halves.make_small_levels(rng)
        has_small = small["data"][:, None] != 0
        rest = np.where(has_small, images.sizes[:, ::-1] - corner, rng.uniform(1, 60, (100, 2)))
        columns = {
            "geometry": rng.choice([BOX, CENTER], 100),
            "resize": SIZE + rng.integers(0, 9, 100),
            "filter": rng.integers(0, 2, 100),
            "mirror": rng.random(100) < 0.5,
            "full_size": rng.random(100) < 0.5,
            "box": np.concatenate([corner, rest], axis=1),
            "size": np.where(has_small, images.sizes, 0),
            "small": small,
        }
        counts.update(decode_twice(decoder, images.sources, columns))
    return counts


def fuzz_betons(
    decoder: NativeDecoder, count: int, rng: np.random.Generator, folder: Path
) -> Counter:
    """Open mutated .beton files with two levels, and decode the accepted files."""
    for number in range(12):
        for split in ("train", "val"):
            path = folder / split / f"class{number % 2}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            make_picture(rng).save(path, quality=80)
    options = ConvertOptions(workers=1, levels=2)
    converted = folder / "converted"
    convert(folder, converted, options, lambda done, total: None)
    path = converted / "train.beton"
    counts = Counter()
    for _ in range(count):
        beton, half = (open_mutated(original, rng) for original in (path, get_half_path(path)))
        counts["rejected when opened"] += (beton is None) + (half is None)
        if beton is not None:
            images = read_samples(beton)
            halves = read_samples(half or beton)
            corner = np.zeros((len(beton), 2))
            fraction = rng.choice([0.5, 1], (len(beton), 2))
            rest = np.maximum(images.sizes[:, ::-1] * fraction, 1)
            columns = {
                "size": images.sizes,
                "raw": images.raw,
                "box": np.concatenate([corner, rest], axis=1),
            }
            if half is not None and len(half) == len(beton):
                columns["small"] = halves.make_small_levels(rng)
            counts.update(decode_twice(decoder, images.sources, columns))
    return counts


def open_mutated(original: Path, rng: np.random.Generator) -> Beton | None:
    """Open a mutated copy of a .beton file without a sidecar; None if it is rejected."""
    path = original.with_name(f"mutated.{original.name}")
    metadata = int(open_beton(original).starts.min())
    data = np.fromfile(original, np.uint8)
    mutate(data, rng, metadata if rng.random() < 0.5 else len(data)).tofile(path)
    try:
        return open_beton(path)
    except NotReadyError:
        return None


def read_samples(beton: Beton) -> Images:
    """Return the samples of a file."""
    sources = [beton.sample(index).copy() for index in range(len(beton))]
    return Images(sources, beton.sizes, beton.modes != JPEG)


def main() -> None:
    """Build the library, restart with the sanitizers preloaded, and fuzz."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jpegs", type=int, default=20_000)
    parser.add_argument("--betons", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        build()
        command = ["g++", "-print-file-name=libasan.so"]
        sanitizer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        environment = os.environ | {
            "LD_PRELOAD": sanitizer.strip(),
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        os.execve(sys.executable, sys.orig_argv, environment)
    native.load_library = lambda: load_library(SANITIZED_LIBRARY)
    start = time.monotonic()
    rng = np.random.default_rng(arguments.seed)
    with tempfile.TemporaryDirectory() as folder, closing(NativeDecoder(2)) as decoder:
        print_counts(f"{arguments.jpegs} JPEGs", fuzz_jpegs(decoder, arguments.jpegs, rng))
        print_counts(
            f"{arguments.betons} .beton files",
            fuzz_betons(decoder, arguments.betons, rng, Path(folder)),
        )
    print(f"nothing found in {time.monotonic() - start:.0f} s")


def print_counts(what: str, counter: Counter) -> None:
    """Print the counts with their names, the highest first."""
    counts = (
        f"{count} {getattr(kind, 'name', kind).lower()}" for kind, count in counter.most_common()
    )
    print(f"{what}: {', '.join(counts)}", flush=True)


if __name__ == "__main__":
    main()
