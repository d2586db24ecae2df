"""Whatever has happened to a file, it is read or refused with a reason.

No crash, no hang, no other exception.

RESNET_RECIPES_MUTANTS=2000 tries that many; 100 are enough to notice a lost `except`.
"""

import os
from pathlib import Path

import mutants
import numpy as np
import pytest
from PIL import Image

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.beton.file import open_beton
from resnet_recipes.data.convert import run as converting
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.convert.pool import encode_one
from resnet_recipes.data.convert.source import BetonSource, FileSource
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.images.decode import BadImageError, Picture
from resnet_recipes.doctor.data import check_data
from resnet_recipes.doctor.image import check_image

COUNT = int(os.environ.get("RESNET_RECIPES_MUTANTS", "100"))


def refusal(data: bytes) -> str:
    """Decode an image in every way; return why it is refused, or ""."""
    try:
        picture = Picture(data)
        size = picture.height, picture.width
        assert picture.crop(0, 0, *size).shape == (*size, 3)
        assert Picture(data).crop(0, 0, 1, 1).shape == (1, 1, 3)
        assert Picture(data).resized_crop((0, 0, *size), 8).shape == (8, 8, 3)
    except BadImageError as error:
        return str(error) or "refused without a reason"
    return ""


def test_a_damaged_image_is_read_or_refused_alike_by_training_doctor_and_conversion(tmp_path):
    good = mutants.images()
    assert not any(refusal(data) for _, data in good)
    refused = 0
    for name, data in mutants.mutants(good, COUNT):
        (tmp_path / name).write_bytes(data)
        why = refusal(data)
        refused += bool(why)
        source = FileSource(Listing.made(str(tmp_path), [("a", name, len(data))]))
        assert check_image(tmp_path / name).bad == why
        assert [
            isinstance(encode_one(source, 0, ConvertOptions(mode)), str) for mode in ("jpg", "raw")
        ] == [bool(why)] * 2
    assert COUNT / 3 < refused < COUNT


@pytest.fixture
def betons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Return a small .beton file and its sidecar."""
    monkeypatch.setattr(converting, "PAGE_SIZE", 1 << 14)
    rng = np.random.default_rng(0)
    for number in range(12):
        path = tmp_path / "images" / "abc"[number % 3] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (7, 9, 3), np.uint8)).resize((50 + number, 40)).save(
            path
        )
    options = ConvertOptions(max_resolution=64, workers=1)
    converting.convert(tmp_path / "images", tmp_path / "good.beton", options, lambda *_: None)
    return [(name, (tmp_path / name).read_bytes()) for name in ("good.beton", "good.beton.json")]


def test_a_damaged_beton_file_or_sidecar_is_refused_by_doctor_and_conversion_alike(
    betons, tmp_path, monkeypatch
):
    # decodes nothing: fast
    monkeypatch.setattr("resnet_recipes.doctor.beton.verdict", lambda beton: beton.complaint)
    target, refused = tmp_path / "mutant.beton", 0
    sidecar = tmp_path / "mutant.beton.json"
    for name, data in mutants.mutants(betons, COUNT // 4):
        damaged_sidecar = name.endswith("json")
        target.write_bytes(betons[0][1] if damaged_sidecar else data)
        sidecar.unlink(missing_ok=True)
        if damaged_sidecar:
            sidecar.write_bytes(data)
        found = [finding for finding in check_data(target) if finding.level == "fix"]
        refused += bool(found)
        try:
            source = BetonSource(open_beton(target))
        except NotReadyError:
            assert found
            continue
        for index in range(len(source.labels)):
            said = encode_one(source, index, ConvertOptions("raw", None))
            assert bool(source.beton.complaint(index)) <= isinstance(said, str)
    assert COUNT / 12 < refused < COUNT / 4
