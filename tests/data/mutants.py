"""Files damaged at random, from a seed, for tests that no damage crashes a decoder or loader."""

from collections.abc import Iterator

import numpy as np
from PIL import Image

from tests.shared.images import encode_image
from tests.shared.tables import parse_rows, parse_settings

#: Kinds of small files to damage: name, mode, format, Pillow options.
KINDS = parse_rows(
    """
baseline.jpg | RGB | JPEG | quality=80
444.jpg | RGB | JPEG | subsampling='4:4:4'
progressive.jpg | RGB | JPEG | progressive=true
restarts.jpg | RGB | JPEG | restart_marker_rows=1
grey.jpg | L | JPEG |
cmyk.jpg | CMYK | JPEG |
rgb.png | RGB | PNG |
palette.png | P | PNG |
alpha.png | LA | PNG |
deep.png | I;16 | PNG |
lossy.webp | RGB | WEBP |
lossless.webp | RGBA | WEBP | lossless=true
plain.tif | RGB | TIFF |
packed.tif | RGB | TIFF | compression=tiff_lzw
jpeg.tif | RGB | TIFF | compression=jpeg
deep.tif | I | TIFF |
float.tif | F | TIFF |
plain.bmp | RGB | BMP |
plain.ppm | RGB | PPM |
"""
)


def make_valid_files() -> list[tuple[str, bytes]]:
    noise = np.random.default_rng(0).integers(0, 256, (7, 9, 3), np.uint8)
    scene = Image.fromarray(noise).resize((90, 70), Image.BICUBIC)
    deep = Image.fromarray(np.asarray(scene.convert("L")).astype(np.uint16) << 8)
    return [
        (
            name,
            encode_image(
                deep if mode == "I;16" else scene.convert(mode), kind, **parse_settings(options)
            ),
        )
        for name, mode, kind, options in KINDS
    ]


def make_mutants(
    files: list[tuple[str, bytes]], count: int, seed: int = 0
) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of `count` damaged files, which depend on the seed only."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        name, data = files[number % len(files)]
        other = files[rng.integers(len(files))][1]
        yield f"{number:05d}-{name}", bytes(damage_randomly(bytearray(data), other, rng))


def damage_randomly(data: bytearray, other: bytes, rng: np.random.Generator) -> bytearray:
    """Damage a file in one of six ways, mostly near the start, where the headers are."""
    offsets = (len(data) * rng.random(20) ** 3).astype(int).tolist()
    at = offsets[0]
    junk = rng.bytes(int(rng.integers(1, 60)))
    match int(rng.integers(6)):
        case 0:  # flip bits
            for offset in offsets[: rng.integers(1, 20)]:
                data[offset] ^= 1 << int(rng.integers(8))
        case 1:  # truncate it
            del data[rng.integers(len(data)) :]
        case 2:  # change a possible length, count or offset
            width = int(rng.choice([1, 2, 4, 8]))
            order = str(rng.choice(["big", "little"]))
            value = int(rng.choice([0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, -1]))
            at = min(at, len(data) - width)
            data[at : at + width] = (value % 256**width).to_bytes(width, order)
        case 3:  # write or insert random bytes or a JPEG marker
            marker = bytes([0xFF, rng.integers(0xC0, 0x100)]) + junk[:2]
            junk = junk if rng.random() < 0.5 else marker
            data[at : at + int(rng.integers(2)) * len(junk)] = junk
        case 4:  # repeat a part
            end = at + int(rng.integers(1, 200))
            data[end:end] = data[at:end] * int(rng.integers(1, 400))
        case 5:  # append bytes of another file
            data[at:] = other[rng.integers(len(other)) :]
    return data
