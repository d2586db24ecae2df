"""Random JPEGs of every sampling, cropped and scaled at random, match Pillow."""

import io
import os
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.data.images.decode import Picture
from resnet_recipes.data.native.rows import Status
from tests.data.native.batch import Batch
from tests.data.native.random_jpegs import JpegKind, make_random_jpeg


def parse_factors(text: str) -> list[tuple[tuple[int, int], ...]]:
    """Parse sampling factors: "21-11-11" is ((2, 1), (1, 1), (1, 1))."""
    return [tuple((int(h), int(v)) for h, v in kind.split("-")) for kind in text.split()]


USUAL = parse_factors("11-11-11 21-11-11 22-11-11 12-11-11")
GRAY = parse_factors("11 21 12 22")
#: 4:1:1, and factors that hardly any encoder uses.
OTHER = parse_factors(
    "41-11-11 14-11-11 24-11-11 42-11-11 32-11-11 31-11-11 13-11-11 22-21-12 11-21-11 44 31"
)
LONGEST = 40  # pixels
CASES = int(os.environ.get("RESNET_RECIPES_CASES", "300"))


class CropCase(NamedTuple):
    data: bytes
    box: tuple[int, int, int, int]  # left, top, width, height
    side: int
    shrink: int  # 0: resized; else a box of `side` pixels at 1 / shrink, not resized
    full_size: bool
    mirror: bool
    filter: bool  # bicubic

    @property
    def expected(self) -> np.ndarray:
        """The pixels of Pillow, or of the Python decoder if they are resized."""
        left, top, width, height = self.box
        if self.shrink:
            image = Image.open(io.BytesIO(self.data))
            image.draft(None, (image.width // self.shrink, image.height // self.shrink))
            pixels = np.asarray(image.convert("RGB"))[top // self.shrink :, left // self.shrink :]
            pixels = pixels[: self.side, : self.side]
        else:
            box = top, left, height, width
            pixels = Picture(self.data).resized_crop(
                box, self.side, not self.full_size, self.filter
            )
        return pixels[:, ::-1] if self.mirror else pixels


def make_random_case(kinds: list, rng: np.random.Generator) -> CropCase:
    height, width = (int(side) for side in rng.integers(1, LONGEST + 1, 2))
    kind = JpegKind(height, width, kinds[rng.integers(len(kinds))], int(rng.integers(0, 6)))
    shrink = int(rng.choice([0, 1, 2, 4, 8]))
    if min(height, width) < shrink:
        shrink = 1
    side = int(rng.integers(1, min(height, width) // shrink + 1 if shrink else LONGEST))
    size = np.full(2, side * shrink) if shrink else rng.integers(1, [width + 1, height + 1])
    place = rng.integers(0, np.array([width, height]) - size + 1) // max(1, shrink) * max(1, shrink)
    full_size, mirror, bicubic = (rng.random(3) < 0.5).tolist()
    box = tuple(np.concatenate([place, size]).tolist())
    return CropCase(
        make_random_jpeg(kind, rng), box, side, shrink, full_size and shrink < 2, mirror, bicubic
    )


def fill_case(decoder, case: CropCase) -> tuple[Status, np.ndarray]:
    columns = {name: getattr(case, name) for name in ("box", "full_size", "mirror", "filter")}
    batch = Batch([case.data], case.side, **columns)
    return Status(batch.fill(decoder)[0]), batch.pixels[0]


@pytest.mark.parametrize("seed", range(max(1, CASES // 500)))
def test_random_jpegs_equal_pillow_for_any_crop(decoder, seed):
    rng = np.random.default_rng(seed)
    for _ in range(min(CASES, 500)):
        case = make_random_case(USUAL + GRAY, rng)
        status, ours = fill_case(decoder, case)
        assert status == Status.DONE
        # Decoded pixels are identical. Resizing rounds once per direction, differently in each
        # decoder: one gray level each time.
        apart = np.abs(ours.astype(int) - case.expected).max()
        assert apart <= (0 if case.shrink else 2), case


def test_unusual_sampling_is_decoded_by_pillow(decoder):
    rng = np.random.default_rng(1)
    for _ in range(100):
        case = make_random_case(OTHER, rng)
        status, pixels = fill_case(decoder, case)
        assert status == Status.FOREIGN
        assert (pixels == 77).all()
        left, top, width, height = case.box
        cuts = (
            Picture(case.data).resized_crop((top, left, height, width), case.side, reduce)
            for reduce in (True, False)
        )
        assert np.array_equal(*cuts)
