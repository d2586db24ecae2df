"""Any damaged file is read, or rejected with a reason.

No crash, no hang, no other exception.

RESNET_RECIPES_MUTANTS=2000 tries that many files; 100 suffice to notice a lost `except`.
"""

import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.text import do_nothing
from resnet_recipes.data import convert as convert_module
from resnet_recipes.data.convert.encode import ConvertOptions, OriginalImages
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.images.decode import BadImageError, Picture
from resnet_recipes.data.native import NativeDecoder
from resnet_recipes.data.native.rows import CENTER, Status
from resnet_recipes.doctor.data import check_data, check_image
from tests.data import mutants
from tests.data.loaders import requires_decoder
from tests.data.native.batch import Batch
from tests.shared.images import encode_image, make_photo

COUNT = int(os.environ.get("RESNET_RECIPES_MUTANTS", "100"))


def explain_rejected_image(data: bytes) -> str:
    """Decode an image in every way; return why it is rejected, or ""."""
    try:
        picture = Picture(data)
        size = picture.height, picture.width
        assert picture.pixels().shape == (*size, 3)
        assert Picture(data).crop(0, 0, 1, 1).shape == (1, 1, 3)
        assert Picture(data).resized_crop((0, 0, *size), 8).shape == (8, 8, 3)
    except BadImageError as error:
        return str(error) or "rejected without a reason"
    return ""


def test_damaged_image_is_rejected_equally_everywhere(tmp_path):
    good = mutants.make_valid_files()
    assert not any(explain_rejected_image(data) for _, data in good)
    rejected_count = 0
    for name, data in mutants.make_mutants(good, COUNT):
        (tmp_path / name).write_bytes(data)
        why = explain_rejected_image(data)
        rejected_count += bool(why)
        source = OriginalImages.from_listing(
            Listing.build(str(tmp_path), [("a", name, len(data))]), tmp_path
        )
        assert check_image(tmp_path / name).bad == why
        for mode in ("jpg", "raw"):
            assert isinstance(source.encode(0, ConvertOptions(mode)), str) == bool(why)
    assert COUNT / 3 < rejected_count < COUNT


@requires_decoder
def test_decoder_is_deterministic_on_damaged_jpegs():
    jpegs = [file for file in mutants.make_valid_files() if file[0].endswith(".jpg")]
    files = [data or b"\0" for _, data in mutants.make_mutants(jpegs, 4 * COUNT)]
    runs = [Batch(files, 32, geometry=CENTER, resize=40) for _ in range(2)]
    with closing(NativeDecoder(2)) as decoder:
        status, again = (run.fill(decoder) for run in runs)
    assert np.array_equal(status, again)
    assert np.array_equal(runs[0].pixels, runs[1].pixels)
    assert {Status.DONE, Status.DAMAGED, Status.FOREIGN} <= {*status.tolist()}
    assert not {*status.tolist()} & {Status.WAITING, Status.RUNNING, Status.CANCELLED}
    assert not any(
        explain_rejected_image(files[row]) for row in np.flatnonzero(status == Status.DONE)
    )


@pytest.fixture
def small_beton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    monkeypatch.setattr(convert_module, "PAGE_SIZE", 1 << 14)
    for number in range(12):
        path = tmp_path / "images" / "abc"[number % 3] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_image(make_photo(number, 40, 50 + number)))
    options = ConvertOptions(max_resolution=64, workers=1)
    convert_module.convert(tmp_path / "images", tmp_path / "good.beton", options, do_nothing)
    return [(name, (tmp_path / name).read_bytes()) for name in ("good.beton", "good.beton.json")]


def test_damaged_beton_is_rejected_by_doctor_and_convert(small_beton, tmp_path, monkeypatch):
    # The images are not decoded, since this is slow.
    monkeypatch.setattr(
        "resnet_recipes.doctor.beton.make_verifier", lambda beton: beton.describe_damage
    )
    target = tmp_path / "mutant.beton"
    sidecar = tmp_path / "mutant.beton.json"
    rejected_count = 0
    for name, data in mutants.make_mutants(small_beton, COUNT // 4):
        sidecar.unlink(missing_ok=True)
        target.write_bytes(small_beton[0][1])
        (sidecar if name.endswith("json") else target).write_bytes(data)
        findings = [finding for finding in check_data(target) if finding.level == "fix"]
        rejected_count += bool(findings)
        try:
            source = OriginalImages.from_beton(target)
        except NotReadyError:
            assert findings
            continue
        for index in range(len(source.images.labels)):
            encoded = source.encode(index, ConvertOptions("raw", None))
            assert bool(source.images.beton.describe_damage(index)) <= isinstance(encoded, str)
    assert COUNT / 12 < rejected_count < COUNT / 4
