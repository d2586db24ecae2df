"""ProgressiveResizing against the published tables of sizes."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from resnet_recipes.base.duration import Horizon
from resnet_recipes.methods.base import Batch, Now
from resnet_recipes.methods.progressive_resizing import ProgressiveResizing

#: Values that the settings must reject.
WRONG = {
    "mode": ["zoom"],
    "initial_scale": [0.0, 1.5],
    "delay": ["3ep", "half", "0.9dur"],
    "finetune": ["2", "0.6dur"],
    "size_increment": [0],
    "stairs": [[("1ep", 0.5)], [("0ep", 0.0)], [("0ep", 1.5)], [("0ep", 0.5), ("later", 1.0)]],
    "interpolation": ["cubic"],
    "at": ["worker"],
    "size_from_epoch": ["middle"],
}

#: Methods whose order decides the sizes, or which pixels remain.
DOES_NOT_COMMUTE = {"random_translation", "colout"}

MILD = ProgressiveResizing(initial_scale=0.5, delay="0.4dur", finetune="0.2dur")
HOT = ProgressiveResizing(initial_scale=0.6, delay="0.2dur", finetune="0.2dur")


def parse_sizes(text: str) -> dict[int, int]:
    """Return sizes by epoch from "0:88, 14:92"."""
    return {int(epoch): int(size) for epoch, size in (pair.split(":") for pair in text.split(", "))}


@pytest.mark.parametrize(
    ("method", "full", "row"),
    [
        (
            MILD,
            176,
            "0:88, 40:88, 45:100, 50:112, 55:120, 60:132, 65:144, 70:152, 75:164, 80:176, 99:176",
        ),
        (
            HOT,
            167,
            "0:100, 20:100, 30:112, 35:116, 40:124, 45:128, 50:132, 55:140, 60:144, 65:152, "
            "70:156, 75:160, 80:167",
        ),
        (
            HOT,
            176,
            "0:104, 20:104, 30:116, 35:124, 40:128, 45:136, 50:140, 55:148, 60:152, 65:160, "
            "70:164, 75:172, 80:176",
        ),
    ],
)
def test_image_size_follows_fraction_of_run(method, full, row):
    assert {
        share: method.size_at_fraction(full, Fraction(share, 100)) for share in parse_sizes(row)
    } == parse_sizes(row)


def test_stair_scale_holds_until_the_next_stair():
    # as in the DAWNBench record: 96 px x 12, 128 x 6, 224 x 2 and 288 x 1 of 21 epochs
    stairs = [("0ep", 24 / 64), ("0.5dur", 32 / 64), ("12ep", 52 / 64), ("150ba", 1.0)]
    method = ProgressiveResizing(stairs=stairs)
    horizon = Horizon(160, 10)
    sizes = [method.size_in_epoch(64, epoch, horizon) for epoch in range(16)]
    assert sizes == [24] * 8 + [32] * 4 + [52] * 3 + [64]
    assert method.size_after(64, 3, horizon) == 24
    twice = [method.size_in_epoch(64, epoch, Horizon(320, 10)) for epoch in range(32)]
    assert twice == [24] * 12 + [52] * 3 + [64] * 17  # half of the run, 16 epochs, comes after 12ep


def test_stairs_that_end_below_full_size_give_advice():
    low = ProgressiveResizing(stairs=[("0ep", 0.5)])
    assert ["stairs" in str(note) for note in low.advice(Horizon(10, 1), 64, ())] == [True]
    full = ProgressiveResizing(stairs=[("0ep", 0.5), ("9ep", 1.0)])
    assert not list(full.advice(Horizon(10, 1), 64, ()))


def resize_images(
    method: ProgressiveResizing, images: torch.Tensor, elapsed: Fraction, seed: int = 0
) -> torch.Tensor:
    now = Now(elapsed.numerator, Horizon(elapsed.denominator, 1), np.random.default_rng(seed))
    return method.transform_batch(Batch(images, torch.zeros(1), torch.zeros(1)), now).images


@pytest.mark.parametrize("full", [160, 167, 176, 192, 212, 224, 256, 288])
def test_nearest_resizing_is_exact_for_every_size(full):
    method = ProgressiveResizing(initial_scale=0.1, delay="0dur", finetune="0dur", size_increment=1)
    line = torch.arange(float(full)).expand(1, 3, 1, -1)
    for elapsed in (Fraction(step, full) for step in range(0, full, 3)):
        size = method.size_at_fraction(full, elapsed)
        columns = resize_images(method, line.expand(-1, -1, full, -1), elapsed)[0, 0, 0]
        assert columns.int().tolist() == [i * full // size for i in range(size)]


def test_sizes_at_half_increments_are_rounded_to_even():
    method = ProgressiveResizing(
        initial_scale=0.5, delay="0.5dur", finetune="0.2dur", size_increment=4
    )
    # sizes of 2.5 and 3.5 increments
    assert (method.size_at_fraction(20, Fraction(0)), method.size_at_fraction(28, Fraction(0))) == (
        8,
        16,
    )


def test_bilinear_halving_averages_four_pixels():
    method = ProgressiveResizing(interpolation="bilinear")
    x = torch.randn(2, 3, 16, 16)
    assert torch.allclose(
        resize_images(method, x, Fraction(0, 1)), torch.nn.functional.avg_pool2d(x, 2), atol=1e-6
    )


def test_non_square_images_keep_their_shape():
    x = torch.randn(2, 3, 16, 32)
    for interpolation in ("nearest", "bilinear"):
        method = ProgressiveResizing(interpolation=interpolation)
        assert resize_images(method, x, Fraction(0, 1)).shape == (2, 3, 8, 16)


def test_resizing_crop_is_window_that_reaches_all_borders():
    method = ProgressiveResizing(mode="crop", size_increment=1)
    x = torch.arange(16.0).view(1, 1, 4, 4).expand(2, 3, -1, -1)
    tops = set()
    lefts = set()
    for seed in range(60):
        window = resize_images(method, x, Fraction(0, 1), seed)
        top, left = divmod(int(window[0, 0, 0, 0]), 4)
        assert torch.equal(window, x[..., top : top + 2, left : left + 2])
        tops.add(top)
        lefts.add(left)
    assert tops == lefts == {0, 1, 2}


def test_full_size_and_loader_placement_leave_batch_unchanged():
    x = torch.randn(1, 3, 32, 32)
    assert resize_images(MILD, x, Fraction(9, 10)) is x
    assert not ProgressiveResizing(at="loader").provides("transform_batch")
    assert ProgressiveResizing().provides("transform_batch")


def test_only_resizing_on_the_device_suggests_the_loader():
    suggestions = [
        ProgressiveResizing(at=at).suggest_faster_loading() for at in ("device", "loader")
    ]
    assert suggestions == ["methods.progressive_resizing.at=loader", ""]
