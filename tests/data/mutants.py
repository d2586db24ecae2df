"""Files damaged at random, from a seed, as disks, networks and attackers would damage them."""

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image

#: Kinds of small files to damage: name, mode, format, options of Pillow.
KINDS = (
    ("baseline.jpg", "RGB", "JPEG", {"quality": 80}),
    ("444.jpg", "RGB", "JPEG", {"subsampling": "4:4:4"}),
    ("progressive.jpg", "RGB", "JPEG", {"progressive": True}),
    ("restarts.jpg", "RGB", "JPEG", {"restart_marker_rows": 1}),
    ("grey.jpg", "L", "JPEG", {}),
    ("cmyk.jpg", "CMYK", "JPEG", {}),
    ("rgb.png", "RGB", "PNG", {}),
    ("palette.png", "P", "PNG", {}),
    ("alpha.png", "LA", "PNG", {}),
    ("deep.png", "I;16", "PNG", {}),
    ("lossy.webp", "RGB", "WEBP", {}),
    ("lossless.webp", "RGBA", "WEBP", {"lossless": True}),
    ("plain.tif", "RGB", "TIFF", {}),
    ("packed.tif", "RGB", "TIFF", {"compression": "tiff_lzw"}),
    ("jpeg.tif", "RGB", "TIFF", {"compression": "jpeg"}),
    ("deep.tif", "I", "TIFF", {}),
    ("float.tif", "F", "TIFF", {}),
    ("plain.bmp", "RGB", "BMP", {}),
    ("plain.ppm", "RGB", "PPM", {}),
)


def images() -> list[tuple[str, bytes]]:
    """Return a small good file of every kind."""
    noise = np.random.default_rng(0).integers(0, 256, (7, 9, 3), np.uint8)
    scene = Image.fromarray(noise).resize((90, 70), Image.BICUBIC)
    files = []
    for name, mode, kind, options in KINDS:
        buffer = io.BytesIO()
        deep = Image.fromarray(np.asarray(scene.convert("L")).astype(np.uint16) << 8)
        (deep if mode == "I;16" else scene.convert(mode)).save(buffer, kind, **options)
        files.append((name, buffer.getvalue()))
    return files


def mutants(
    files: list[tuple[str, bytes]], count: int, seed: int = 0
) -> Iterator[tuple[str, bytes]]:
    """Yield `count` damaged files, each as its name and content; a function of the seed."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        name, data = files[number % len(files)]
        change = (_flipped, _cut, _length, _garbage, _repeated, _spliced)[rng.integers(6)]
        other = files[rng.integers(len(files))][1]
        yield f"{number:05d}{change.__name__}-{name}", bytes(change(bytearray(data), rng, other))


def _place(data: bytearray, rng: np.random.Generator) -> int:
    """Choose a place, mostly near the start, where the headers are."""
    return int(len(data) * rng.random() ** 3)


def _flipped(data: bytearray, rng: np.random.Generator, other: bytes) -> bytearray:
    for _ in range(rng.integers(1, 20)):
        data[_place(data, rng)] ^= 1 << rng.integers(8)
    return data


def _cut(data: bytearray, rng: np.random.Generator, other: bytes) -> bytearray:
    return data[: rng.integers(len(data))]


def _length(data: bytearray, rng: np.random.Generator, other: bytes) -> bytearray:
    """Overwrite what may be a length, a count or an offset."""
    width = int(rng.choice([1, 2, 4, 8]))
    value = int(
        rng.choice([0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF])
    )
    at = min(_place(data, rng), len(data) - width)
    data[at : at + width] = (value % 256**width).to_bytes(
        width, "big" if rng.random() < 0.5 else "little"
    )
    return data


def _garbage(data: bytearray, rng: np.random.Generator, other: bytes) -> bytearray:
    """Write or insert bytes, or a JPEG marker."""
    at, junk = _place(data, rng), rng.bytes(int(rng.integers(1, 60)))
    if rng.random() < 0.5:
        junk = b"\xff" + bytes([rng.integers(0xC0, 0x100)]) + junk[:2]
    data[at : at + int(rng.integers(2)) * len(junk)] = junk
    return data


def _repeated(data: bytearray, rng: np.random.Generator, other: bytes) -> bytearray:
    """Repeat a part many times."""
    start = _place(data, rng)
    end = start + int(rng.integers(1, 200))
    return data[:end] + data[start:end] * int(rng.integers(1, 400)) + data[end:]


def _spliced(data: bytearray, rng: np.random.Generator, other: bytes) -> bytearray:
    """Continue with the bytes of another file."""
    return data[: _place(data, rng)] + other[rng.integers(len(other)) :]
