"""Images are shrunk by area means, bit-identically in the native decoder and in Python."""

import numpy as np
import pytest

from resnet_recipes.data import native
from resnet_recipes.data.images.decode import Picture, Pixels
from resnet_recipes.data.images.shrink import compute_shrunk_size, shrink_by_area
from tests.data.loaders import requires_decoder
from tests.data.native.batch import JPEGS, decode_with_pillow
from tests.shared.images import encode_image, make_photo

#: Sizes before and after: one pixel, thin, nearly equal, much smaller, not proportional.
SIZES = [
    ((1, 1), (1, 1)),
    ((7, 1), (3, 1)),
    ((1, 50), (1, 7)),
    ((40, 61), (39, 60)),
    ((83, 90), (2, 5)),
    ((64, 64), (32, 21)),
    ((75, 100), (66, 88)),
]


def shrink_in_loops(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return float32 sums over rows, then over columns; weights are the covered parts of pixels."""

    def shrink_lines(values: np.ndarray, length: int) -> np.ndarray:
        scale = len(values) / length
        lines = []
        for i in range(length):
            total = np.zeros_like(values[0])
            for j in range(len(values)):
                covered = min(j + 1, (i + 1) * scale) - max(j, i * scale)
                if covered > 0:
                    total = total + np.float32(covered / scale) * values[j]
            lines.append(total)
        return np.stack(lines)

    rows = shrink_lines(pixels.astype(np.float32), height)
    return np.rint(shrink_lines(rows.swapaxes(0, 1), width).swapaxes(0, 1)).astype(np.uint8)


@pytest.fixture(params=[pytest.param("native", marks=requires_decoder), "python"])
def shrink_with(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(native, "find_decoder_fault", lambda: "was not built")


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_area_mean_equals_manual_sums(before, after, shrink_with):
    pixels = np.random.default_rng(1).integers(0, 256, (*before, 3), np.uint8)
    assert np.array_equal(shrink_by_area(pixels, *after), shrink_in_loops(pixels, *after))


@pytest.mark.parametrize("kind", JPEGS)
def test_shrunk_jpeg_equals_mean_of_pillow_pixels(kind, shrink_with):
    data = encode_image(make_photo(), **JPEGS[kind])
    pixels = Picture(data).shrink(*compute_shrunk_size(150, 211, 99))
    assert np.array_equal(pixels, shrink_in_loops(decode_with_pillow(data), 70, 99))


@requires_decoder
@pytest.mark.parametrize("kind", sorted({*JPEGS} - {"with EXIF"}))
def test_jpeg_check_rejects_exactly_what_decoding_rejects(kind):
    data = encode_image(make_photo(), **JPEGS[kind])
    results = []
    for at in range(len(data) // 2, len(data) - 8, len(data) // 30):
        cut = np.frombuffer(data[:at] + data[at + 5 :], np.uint8)
        checked, decoded = (native.shrink(cut, (150, 211), size) for size in ((0, 0), (150, 211)))
        results.append((checked is None, decoded is None))
    assert {*results} <= {(True, True), (False, False)}
    assert (True, True) in results
    Picture(data).check()


def test_shrunk_image_without_decoder_equals_pillow(shrink_with):
    data = encode_image(make_photo().convert("CMYK"))
    assert np.array_equal(
        Picture(data).shrink(75, 105), shrink_in_loops(decode_with_pillow(data), 75, 105)
    )


def test_shrink_of_strided_view_equals_hand_written_mean(shrink_with):
    pixels = np.random.default_rng(2).integers(0, 256, (30, 60, 3), np.uint8)[:, ::2]
    assert np.array_equal(Pixels(pixels).shrink(10, 10), shrink_in_loops(pixels, 10, 10))


@pytest.mark.parametrize(
    ("size", "longest", "expected"),
    [
        ((712, 1072), 500, (332, 500)),  # rounded down
        ((800, 600), 500, (500, 375)),
        ((10, 9), None, (10, 9)),
        ((1, 9000), 16, (1, 16)),
    ],
)
def test_shrunk_size_limits_the_longer_side(size, longest, expected):
    assert compute_shrunk_size(*size, longest) == expected
