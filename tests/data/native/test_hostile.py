"""Files that no decoder should trust.

Each is rejected with its own status, and none returns pixels of another image.
"""

import os
import struct
from contextlib import closing

import numpy as np
import pytest

from resnet_recipes.data.images.decode import BadImageError, Picture
from resnet_recipes.data.native import NativeDecoder, describe
from resnet_recipes.data.native.rows import Status
from tests.data.native.batch import Batch, declare_size
from tests.shared.images import encode_image, make_photo
from tests.shared.tables import parse_rows

BOX = (0, 0, 64, 64)


def fill_one(decoder, data: bytes, **columns) -> Status:
    """Return the status of one image; the pixels of a rejected image must not be written."""
    batch = Batch([data], 32, **{"box": BOX} | columns)
    status = Status(batch.fill(decoder)[0])
    assert status == Status.DONE or (batch.pixels == 77).all()
    return status


WHOLE = encode_image(make_photo(), quality=90)
PROGRESSIVE = encode_image(make_photo(), quality=90, progressive=True)
START, END = b"\xff\xd8", b"\xff\xd9"


@pytest.mark.parametrize(
    ("status", "images"),
    [
        (Status.DONE, [WHOLE, PROGRESSIVE, declare_size(PROGRESSIVE, 150, 211)]),
        # decoded in Python
        (
            Status.FOREIGN,
            [encode_image(make_photo(), kind) for kind in ("PNG", "WEBP", "BMP", "PPM", "TIFF")],
        ),
        (Status.FOREIGN, [encode_image(make_photo().convert("CMYK")), bytes(100)]),
        (Status.FOREIGN, [START[:1], START, (START + END) * 2]),
        (Status.DAMAGED, [(START + END) * 8]),
        # truncated
        (Status.DAMAGED, [WHOLE[:-1], WHOLE[:-2], WHOLE[:700], WHOLE[:700] + END]),
        # scans that libjpeg would complete
        (Status.DAMAGED, [PROGRESSIVE[:length] + END for length in (3000, 6000, -40)]),
        # trailing bytes, which FFCV files do not have
        (Status.DAMAGED, [WHOLE + b"garbage"]),
        # rejected before decoding, or before coefficients are allocated
        (
            Status.EXCESSIVE,
            [declare_size(WHOLE, 65000, 65000), declare_size(PROGRESSIVE, 6000, 5000)],
        ),
    ],
    ids=str,
)
def test_invalid_jpegs_are_rejected_by_kind(decoder, status, images):
    assert [fill_one(decoder, data) for data in images] == [status] * len(images)


def test_fill_rejects_empty_bytes(decoder):
    assert fill_one(decoder, b"\0", length=0) == Status.FOREIGN


def test_bytes_before_restart_marker_are_damage(decoder):
    if not describe().endswith("inside"):
        pytest.skip("a libjpeg-turbo of the system decodes every code, and passes over them")
    data = encode_image(make_photo(), restart_marker_blocks=3)
    for marker in (b"\xff\xd0", b"\xff\xd5"):
        at = data.index(marker, data.index(b"\xff\xda"))
        images = [data[:at] + more + data[at:] for more in (b"", b"\xff", b"\0", b"\xff\0")]
        status = Batch(images, 32, box=BOX).fill(decoder).tolist()
        assert status == [Status.DONE, Status.DONE, Status.DAMAGED, Status.DAMAGED]


def make_gray_in_scans(side: int, times: int) -> bytes:
    """Return a valid progressive JPEG with a scan for each of 64 coefficients, repeated."""
    last = times - 1  # the lowest bit in the first pass
    tables = [(0xDB, bytes(1) + b"\1" * 64)]
    tables += [(0xC2, struct.pack(">BHHB3B", 8, side, side, 1, 1, 0x11, 0))]
    tables += [(0xC4, bytes([kind, 1, *16 * [0]])) for kind in (0x00, 0x10)]  # one code: zero
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
def test_valid_scans_are_limited_by_number_and_size(decoder, side, times, status):
    assert fill_one(decoder, make_gray_in_scans(side, times)) == status


def test_unexpected_size_is_a_mismatch(decoder):
    sizes = (150, 211), (150, 212), (151, 211)
    statuses = [fill_one(decoder, WHOLE, size=size) for size in sizes]
    assert statuses == [Status.DONE, Status.MISMATCHED, Status.MISMATCHED]


@pytest.mark.parametrize(
    "box",
    parse_rows(
        """
-1 | 0 | 9 | 9
0 | 0 | 212 | 9
0 | 0 | 9 | 151
0 | 0 | 0 | 9
205 | 0 | 9 | 9
nan | 0 | 9 | 9
0 | 0 | inf | 9
1e300 | 0 | 9 | 9
211 | 0 | 1e-300 | 9
0 | 150 | 9 | 1e-300
"""
    ),
)
@pytest.mark.parametrize("raw", [False, True])
def test_box_outside_image_is_a_mismatch(decoder, box, raw):
    image = np.asarray(make_photo()) if raw else encode_image(make_photo())
    batch = Batch([image], 32, box=tuple(map(float, box)), size=(150, 211), raw=raw)
    assert batch.fill(decoder)[0] == Status.MISMATCHED


def test_raw_pixels_need_three_bytes_each(decoder):
    batch = Batch([bytes(3 * 64 * 64 - 1)], 32, box=BOX, size=(64, 64), raw=True)
    assert batch.fill(decoder)[0] == Status.MISMATCHED


def test_jpeg_tables_are_not_reused_across_images(decoder):
    whole = encode_image(make_photo(1, 64, 64), quality=20)
    start = whole.index(b"\xff\xdb")
    end = whole.index(b"\xff\xc0")
    # file without quantization tables; libjpeg would keep those of the previous image
    without = whole[:start] + whole[end:]
    batch = Batch([whole, without] * 10, 32, box=BOX)
    assert batch.fill(decoder).tolist() == [Status.DONE, Status.DAMAGED] * 10


def test_empty_huffman_table_reuses_no_earlier_codes(require_decoder):
    whole = encode_image(make_photo(1, 64, 64), quality=20)
    at = whole.index(b"\xff\xc4\x00\x1f\x01")  # Huffman codes of the DC coefficients of chroma
    without = whole[:at] + b"\xff\xc4\x00\x13\x01" + bytes(16) + whole[at + 33 :]
    with closing(NativeDecoder(1)) as earlier:  # leaves its tables on the stack
        assert fill_one(earlier, whole) == Status.DONE
    with closing(NativeDecoder(1)) as decoder:
        assert fill_one(decoder, without) == Status.DAMAGED


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "unreadable"])
def test_special_files_are_rejected_at_once(decoder, tmp_path, kind):
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
    assert batch.fill(decoder)[0] == Status.UNREADABLE
    assert os.strerror(int(batch.rows["error"][0])) != "Success"


@pytest.mark.parametrize("raw", [True, False])
def test_truncated_mapped_file_returns_status(decoder, tmp_path, raw):
    image = np.asarray(make_photo(0, 400, 500))
    path = tmp_path / "mapped"
    image = (
        image
        if raw
        else np.frombuffer(encode_image(make_photo(0, 900, 1100), quality=98), np.uint8)
    )
    path.write_bytes(image.tobytes())
    mapped = np.memmap(path, np.uint8, mode="r")
    batch = Batch([mapped], 32, box=(0, 0, 400, 300), size=(400, 500) if raw else 0, raw=raw)
    assert not batch.fill(decoder).any()
    os.truncate(path, 4096)
    assert batch.fill(decoder)[0] == Status.CUT_SHORT
    assert Batch([encode_image(make_photo())], 32, box=BOX).fill(decoder)[0] == Status.DONE


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("segment", [b"", b"\0\4ab", b"\0\0", b"\x7f\xffab"])
def test_data_after_last_scan_is_damage(decoder, segment, progressive):
    data = PROGRESSIVE if progressive else WHOLE
    markers = range(1, 256, 3)
    rejected_count = 0
    for marker in markers:
        bad = data[:-2] + bytes([0xFF, marker]) + segment + b"\xff\xd9"
        try:
            Picture(bad).crop(*BOX)
        except BadImageError:
            rejected_count += 1
            assert fill_one(decoder, bad) == Status.DAMAGED
    assert 70 < rejected_count < len(markers)
    plain = data[:-2] + b"\xff\xe1\0\4ab\xff\xff\xff\xd9"  # a segment and fill bytes
    assert fill_one(decoder, plain) == Status.DONE
