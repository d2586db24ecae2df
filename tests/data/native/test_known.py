"""The library is tried on known JPEGs when it is loaded; wrong pixels, and it is left out."""

import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_recipes import data
from resnet_recipes.data import native as known
from resnet_recipes.data.native import UnavailableError, library, why_not
from resnet_recipes.doctor.native import check_native
from tests.data.conftest import small


@pytest.mark.parametrize("name", known.PIXELS)
def test_the_known_pixels_are_pillows(name):
    for (left, top, size, side), crc in zip(known.WAYS.values(), known.PIXELS[name], strict=True):
        with Image.open(known.FOLDER / f"{name}.jpg") as image:
            shrink = size // side
            image.draft(None, (image.width // shrink, image.height // shrink))
            pixels = np.asarray(image.convert("RGB"))[top // shrink :, left // shrink :]
        assert zlib.crc32(np.ascontiguousarray(pixels[:side, :side])) == crc


@pytest.fixture
def reloaded(built):
    """Load the library again, during the test and after it."""
    library.cache_clear()
    yield
    library.cache_clear()


def test_a_library_with_other_pixels_is_left_out_and_the_plan_and_the_doctor_say_so(
    reloaded, folder, monkeypatch
):
    monkeypatch.setitem(known.PIXELS, "grey", (0, *known.PIXELS["grey"][1:]))
    assert "gives wrong pixels (grey cropped; 1 of 30 trials)" in why_not()
    (note,) = data.measure(small(folder)).notes
    assert "in Python, at about half the speed: the native decoder with " in note
    assert (
        "gives wrong pixels" in check_native()[-1].what or "gives wrong" in check_native()[0].what
    )


def test_a_library_that_lacks_a_function_was_built_from_other_sources():
    another = next(Path(np.__file__).parent.rglob("*.so"))
    with pytest.raises(UnavailableError, match="built from other sources; install"):
        library(another)
