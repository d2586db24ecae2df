"""Files that no decoder should trust.

Each is refused with its own status, and none gives another image's pixels.
"""

import io
import os
import re
import struct

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.data.images.decode import BadImageError, Picture
from resnet_recipes.data.native.engine import Engine
from resnet_recipes.data.native.library import description
from resnet_recipes.data.native.rows import Status
from tests.data.native.batch import Batch, by_pillow, encoded, photo

BOX = (0, 0, 64, 64)


def status_of(engine, data: bytes, **columns) -> Status:
    """Return the status of one image; if it is refused, its pixels must not be written."""
    batch = Batch([data], 32, **{"box": BOX} | columns)
    status = Status(batch.filled(engine)[0])
    assert status == Status.DONE or (batch.pixels == 77).all()
    return status


def with_size(data: bytes, height: int, width: int) -> bytes:
    """Return a JPEG whose header announces another size."""
    at = re.search(b"\xff[\xc0\xc2]", data).start() + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "PPM", "TIFF"])
def test_other_formats_are_left_to_the_python_decoder(engine, kind):
    assert status_of(engine, encoded(photo(), kind)) == Status.FOREIGN


def test_cmyk_is_left_to_the_python_decoder(engine):
    assert status_of(engine, encoded(photo().convert("CMYK"))) == Status.FOREIGN


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xd8", b"\xff\xd8\xff\xd9" * 2, bytes(100)])
def test_a_few_bytes_are_not_an_image(engine, data):
    assert status_of(engine, data or b"\0", length=len(data)) == Status.FOREIGN


def test_headers_without_an_image_are_damaged(engine):
    assert status_of(engine, b"\xff\xd8\xff\xd9" * 8) == Status.DAMAGED


def test_a_jpeg_that_was_cut_off_is_damaged(engine):
    data = encoded(photo(), quality=90)
    for length in (len(data) - 1, len(data) - 2, len(data) // 2, 700):
        assert status_of(engine, data[:length]) == Status.DAMAGED
    assert status_of(engine, data[:700] + b"\xff\xd9") == Status.DAMAGED


def test_a_progressive_jpeg_whose_scans_libjpeg_would_fill_up_is_damaged(engine):
    data = encoded(photo(), quality=90, progressive=True)
    assert status_of(engine, data) == Status.DONE
    for length in (len(data) // 4, len(data) // 2, len(data) - 40):
        assert status_of(engine, data[:length] + b"\xff\xd9") == Status.DAMAGED


def test_garbage_after_a_jpeg_in_memory_is_damage_as_ffcvs_files_have_none(engine):
    assert status_of(engine, encoded(photo()) + b"garbage") == Status.DAMAGED


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(engine):
    assert status_of(engine, with_size(encoded(photo()), 65000, 65000)) == Status.EXCESSIVE


def test_a_progressive_image_of_too_many_pixels_is_refused_before_its_coefficients_are_kept(engine):
    data = encoded(photo(), progressive=True)
    assert status_of(engine, with_size(data, 6000, 5000)) == Status.EXCESSIVE
    assert status_of(engine, with_size(data, 150, 211)) == Status.DONE


def test_bytes_left_over_before_a_restart_marker_are_damage(engine):
    if not description().endswith("inside"):
        pytest.skip("a libjpeg-turbo of the system decodes every code, and passes over them")
    data = encoded(photo(), restart_marker_blocks=3)
    for marker in (b"\xff\xd0", b"\xff\xd5"):
        at = data.index(marker, data.index(b"\xff\xda"))
        images = [data[:at] + more + data[at:] for more in (b"", b"\xff", b"\0", b"\xff\0")]
        status = Batch(images, 32, box=BOX).filled(engine).tolist()
        assert status == [Status.DONE, Status.DONE, Status.DAMAGED, Status.DAMAGED]


def grey_in_scans(side: int, times: int) -> bytes:
    """Return a valid progressive JPEG with a scan for each of 64 coefficients, so many times."""
    last = times - 1  # the lowest bit of the first time
    tables = [(0xDB, bytes(1) + b"\1" * 64)]
    tables += [(0xC2, struct.pack(">BHHB3B", 8, side, side, 1, 1, 0x11, 0))]
    tables += [(0xC4, bytes([kind, 1, *16 * [0]])) for kind in (0x00, 0x10)]  # one code: nothing
    blocks = (side // 8) ** 2
    zeros = bytes(blocks // 8)
    scans = [
        (0xDA, bytes([1, 1, 0, place, place, (low + 1 if low < last else 0) << 4 | low]))
        for low in range(last, -1, -1)
        for place in range(64)
    ]
    segments = [
        bytes([0xFF, marker]) + struct.pack(">H", len(text) + 2) + text + zeros * (marker == 0xDA)
        for marker, text in (*tables, *scans)
    ]
    return b"\xff\xd8" + b"".join(segments) + b"\xff\xd9"


@pytest.mark.parametrize(
    ("side", "times", "status"),
    [(64, 1, Status.DONE), (64, 2, Status.EXCESSIVE), (2112, 1, Status.EXCESSIVE)],
)
def test_scans_that_are_all_valid_are_too_many_by_number_or_by_size(engine, side, times, status):
    assert status_of(engine, grey_in_scans(side, times)) == status


def test_a_size_that_is_not_the_announced_one_is_a_mismatch(engine):
    data = encoded(photo())
    assert status_of(engine, data, size=(150, 211)) == Status.DONE
    assert status_of(engine, data, size=(150, 212)) == Status.MISMATCHED
    assert status_of(engine, data, size=(151, 211)) == Status.MISMATCHED


@pytest.mark.parametrize(
    "box",
    [
        (-1, 0, 9, 9),
        (0, 0, 212, 9),
        (0, 0, 9, 151),
        (0, 0, 0, 9),
        (205, 0, 9, 9),
        (float("nan"), 0, 9, 9),
        (0, 0, float("inf"), 9),
        (1e300, 0, 9, 9),
        (211, 0, 1e-300, 9),
        (0, 150, 9, 1e-300),
    ],
)
@pytest.mark.parametrize("raw", [False, True])
def test_a_box_outside_the_image_is_a_mismatch(engine, box, raw):
    image = np.asarray(photo()) if raw else encoded(photo())
    batch = Batch([image], 32, box=box, size=(150, 211), raw=raw)
    assert batch.filled(engine)[0] == Status.MISMATCHED


def test_raw_bytes_must_be_three_a_pixel(engine):
    batch = Batch([bytes(3 * 64 * 64 - 1)], 32, box=BOX, size=(64, 64), raw=True)
    assert batch.filled(engine)[0] == Status.MISMATCHED


def test_tables_of_an_earlier_image_do_not_serve_a_later_one(engine):
    whole = encoded(photo(1, 64, 64), quality=20)
    start, end = whole.index(b"\xff\xdb"), whole.index(b"\xff\xc0")
    # no quantisation tables: libjpeg would keep those of the image before
    without = whole[:start] + whole[end:]
    batch = Batch([whole, without] * 10, 32, box=BOX)
    assert batch.filled(engine).tolist() == [Status.DONE, Status.DAMAGED] * 10


def test_codes_of_an_earlier_image_do_not_serve_one_whose_table_is_empty(built):
    whole = encoded(photo(1, 64, 64), quality=20)
    at = whole.index(b"\xff\xc4\x00\x1f\x01")  # the codes of the colours' mean values
    without = whole[:at] + b"\xff\xc4\x00\x13\x01" + bytes(16) + whole[at + 33 :]
    with Engine(1) as earlier:  # leaves its tables on the stack that the next one gets
        assert status_of(earlier, whole) == Status.DONE
    with Engine(1) as engine:
        assert status_of(engine, without) == Status.DAMAGED


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "unreadable"])
def test_anything_but_a_regular_file_is_refused_at_once(engine, tmp_path, kind):
    path = tmp_path / "image.jpg"
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    folder = np.frombuffer(os.fsencode(tmp_path) + b"\0", np.uint8)
    name = np.frombuffer(b"image.jpg", np.uint8)
    length = 9 if kind != "unreadable" else 4096 - len(os.fsencode(tmp_path)) - 1
    name = np.resize(name, 5000)
    batch = Batch(
        [b"x"], 32, box=BOX, data=0, folder=folder.ctypes.data, path=name.ctypes.data, length=length
    )
    assert batch.filled(engine)[0] == Status.UNREADABLE
    assert os.strerror(int(batch.rows["error"][0])) != "Success"


def test_mutated_jpegs_are_refused_by_name_or_decoded_the_same_way_every_time(engine):
    rng = np.random.default_rng(0)
    originals = [
        encoded(photo(n, 80, 90), quality=75, **options)
        for n, options in enumerate(
            ({}, {"progressive": True}, {"subsampling": "4:4:4"}, {"restart_marker_rows": 1})
        )
    ]
    images = []
    for number in range(400):
        data = np.frombuffer(originals[number % 4], np.uint8).copy()
        for place in rng.integers(2, len(data) - 2, rng.integers(1, 4)):
            data[place] = rng.integers(256)
        images.append(data)
    batch = Batch(images, 32, box=(5, 5, 70, 70))
    status = batch.filled(engine)
    assert {Status.DONE, Status.DAMAGED} <= set(status.tolist())
    assert set(status.tolist()) <= set(Status) - {Status.WAITING, Status.RUNNING, Status.CANCELLED}
    again = Batch(images, 32, box=(5, 5, 70, 70))
    again.filled(engine)
    assert np.array_equal(batch.rows["status"], again.rows["status"])
    done = status == Status.DONE
    assert np.array_equal(batch.pixels[done], again.pixels[done])


def test_what_is_decoded_in_spite_of_a_mutation_is_what_pillow_decodes(engine):
    data = bytearray(encoded(photo(3, 64, 64), quality=75))
    at = data.index(b"\xff\xdb") + 10  # a quantisation step: still a valid JPEG, of another image
    data[at] = 99
    batch = Batch([bytes(data)], 64, box=BOX)
    assert batch.filled(engine)[0] == Status.DONE
    assert np.array_equal(batch.pixels[0], by_pillow(bytes(data)))
    assert Image.open(io.BytesIO(bytes(data))).size == (64, 64)


@pytest.mark.parametrize("raw", [True, False])
def test_a_mapped_file_that_loses_its_end_is_a_status_and_not_the_end_of_the_process(
    engine, tmp_path, raw
):
    image, path = np.asarray(photo(0, 400, 500)), tmp_path / "mapped"
    image = image if raw else np.frombuffer(encoded(photo(0, 900, 1100), quality=98), np.uint8)
    path.write_bytes(image.tobytes())
    mapped = np.memmap(path, np.uint8, mode="r")
    batch = Batch([mapped], 32, box=(0, 0, 400, 300), size=(400, 500) if raw else 0, raw=raw)
    assert not batch.filled(engine).any()
    os.truncate(path, 4096)
    assert batch.filled(engine)[0] == Status.CUT_SHORT
    assert Batch([encoded(photo())], 32, box=BOX).filled(engine)[0] == Status.DONE


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("segment", [b"", b"\0\4ab", b"\0\0", b"\x7f\xffab"])
def test_what_pillow_refuses_between_the_last_scan_and_the_end_is_damaged(
    engine, segment, progressive
):
    data = encoded(photo(), quality=90, progressive=progressive)
    markers, refused = range(1, 256), 0
    for marker in markers:
        bad = data[:-2] + bytes([0xFF, marker]) + segment + b"\xff\xd9"
        try:
            Picture(bad).crop(*BOX)
        except BadImageError:
            refused += 1
            assert status_of(engine, bad) == Status.DAMAGED
    assert 200 < refused < len(markers)
    plain = data[:-2] + b"\xff\xe1\0\4ab\xff\xff\xff\xd9"  # a segment, and bytes of filling
    assert status_of(engine, plain) == Status.DONE
