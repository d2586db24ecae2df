"""The library is tested on known JPEGs when it is loaded, with any installed libjpeg-turbo.

A library with wrong pixels is not used.
"""

import os
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import PIL
import pytest
from PIL import Image

from resnet_recipes import data
from resnet_recipes.data import native as known
from resnet_recipes.data.native import PATH, UnavailableError, find_decoder_fault, load_library
from resnet_recipes.data.native import rows as native_rows
from resnet_recipes.doctor.native import check_native
from tests.data.loaders import make_small_config


@pytest.mark.parametrize("name", known.PIXELS)
def test_stored_checksums_equal_checksums_of_pillow_pixels(name):
    for (left, top, size, side), crc in zip(known.WAYS.values(), known.PIXELS[name], strict=True):
        with Image.open(known.FOLDER / f"{name}.jpg") as image:
            shrink = size // side
            image.draft(None, (image.width // shrink, image.height // shrink))
            pixels = np.asarray(image.convert("RGB"))[top // shrink :, left // shrink :]
        assert zlib.crc32(np.ascontiguousarray(pixels[:side, :side])) == crc


@pytest.fixture
def reload_library(require_decoder):
    """Load the library again, during and after the test."""
    load_library.cache_clear()
    yield
    load_library.cache_clear()


def test_library_with_other_pixels_is_not_used(reload_library, image_folder, monkeypatch):
    monkeypatch.setitem(known.PIXELS, "gray", (0, *known.PIXELS["gray"][1:]))
    assert "decodes wrong pixels (gray cropped; 1 of 30 trials)" in find_decoder_fault()
    (note,) = data.survey_images(make_small_config(image_folder)).notes
    assert "in Python, at less than 40% of the speed: the native decoder with " in note.text
    assert (
        "decodes wrong pixels" in check_native()[-1].what
        or "decodes wrong" in check_native()[0].what
    )


@pytest.mark.skipif(not PATH.exists(), reason="it was not built")
def test_native_library_is_available():
    """Without this, other tests would be skipped, and runs would decode slowly without an error."""
    assert find_decoder_fault() == ""


def test_library_without_a_function_is_rejected():
    another = next(Path(np.__file__).parent.rglob("*.so"))
    with pytest.raises(UnavailableError, match="built from other sources; reinstall"):
        load_library(another)


def test_library_with_moved_fields_is_rejected(reload_library, monkeypatch):
    """Two fields of one byte swap places, and the struct keeps its size."""
    row = native_rows.make_blank_rows(0).dtype
    others = {"raw": "mirror", "mirror": "raw"}
    kinds, places = zip(*row.fields.values(), strict=True)
    fields = {"names": [others.get(name, name) for name in row.names], "formats": kinds}
    moved = np.dtype(fields | {"offsets": places, "itemsize": row.itemsize})
    monkeypatch.setattr(native_rows, "_ROW", moved)
    assert "built from other sources; reinstall" in find_decoder_fault()


SONAME = "libjpeg.so.62"
FLAGS = ["-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread"]


@pytest.fixture(scope="module")
def wheels() -> Path:
    libraries = sorted(
        Path(PIL.__file__).parent.parent.glob(f"pillow.libs/libjpeg-*{SONAME[-6:]}*")
    )
    if not libraries:
        pytest.skip("Pillow brings no second libjpeg-turbo: pip install --force-reinstall pillow")
    return libraries[0]


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Path:
    """The known JPEGs, as a file for decode.py."""
    files = [np.fromfile(known.FOLDER / f"{name}.jpg", np.uint8) for name in known.PIXELS]
    images = [file for file in files for _ in known.WAYS]
    rows = native_rows.make_blank_rows(len(images))
    rows["length"] = [image.size for image in images]
    ways = np.tile([*known.WAYS.values()], (len(files), 1))
    rows["box"] = ways[:, [0, 1, 2, 2]]
    rows["output_size"] = ways[:, 3]
    path = tmp_path_factory.mktemp("job") / "job.npz"
    np.savez(path, rows=rows, images=np.concatenate(images))
    return path


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Compile the sources once for the public interface; return a function that links them."""
    folder = tmp_path_factory.mktemp("objects")

    def compile_source(path: Path) -> Path:
        target = folder / f"{path.stem}.o"
        if subprocess.run(["g++", *FLAGS, "-c", path, "-o", target], check=False).returncode:
            pytest.skip("the sources cannot be compiled here")
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_source, sorted((PATH.parent / "src").glob("*.cpp"))))

    def link(name: str, libjpeg: str) -> Path:
        target = folder / f"{name}.so"
        command = ["g++", "-shared", "-pthread", *objects, "-o", target, libjpeg, "-ldl"]
        subprocess.run(command, check=True)
        return target

    return link


def decode_with(library: Path, job: Path, folder: Path) -> tuple[str, bool]:
    """Decode with the libraries of a folder.

    Returns which library was used, and whether all pixels are correct.
    """
    command = [sys.executable, Path(__file__).with_name("decode.py"), library, job]
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    process = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    used, _, crcs = process.stdout.partition("\n")
    expected = [crc for file in known.PIXELS.values() for crc in file]
    return used, [int(crc) for crc in crcs.split()] == expected


def link_library(folder: Path, name: str, library: Path) -> Path:
    (folder / name).symlink_to(library)
    return folder


@pytest.mark.slow
def test_library_is_bit_identical_with_another_libjpeg(require_decoder, wheels, job, tmp_path):
    _, right = decode_with(PATH, job, link_library(tmp_path, SONAME, wheels))
    assert right


@pytest.mark.exhaustive  # compiling takes seconds
def test_public_interface_is_bit_identical_across_libjpegs(wheels, job, build, tmp_path):
    for_system = build("for_system", "-ljpeg")
    for_wheel = build("for_wheel", str(wheels))
    (tmp_path / "wheel").mkdir()
    (tmp_path / "system").mkdir()
    used, right = decode_with(for_system, job, link_library(tmp_path / "wheel", SONAME, wheels))
    assert right
    assert used.startswith(str(tmp_path))
    system, right = decode_with(for_system, job, tmp_path / "none")
    assert right
    used, right = decode_with(
        for_wheel, job, link_library(tmp_path / "system", wheels.name, Path(system))
    )
    assert right
    assert used.startswith(str(tmp_path))
