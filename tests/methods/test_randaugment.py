"""RandAugment against its table of ranges, and the device's pixels against Pillow's."""

from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from resnet_recipes.methods.base import Now
from resnet_recipes.methods.image_ops import IMAGE_OPS
from resnet_recipes.methods.pixel_ops import PIXEL_OPS
from resnet_recipes.methods.randaugment import SETS, RandAugment

#: Values that the settings must refuse.
WRONG = {
    "depth": [0, 21],
    "severity": [0.0, 11.0],
    "augmentation_set": ["none"],
    "placement": ["gpu"],
}


class Fixed:
    """A generator whose uniform draws are all the same."""

    def __init__(self, value: float, sign: int = 1):
        self.value, self.sign = value, sign

    def random(self, count: int) -> np.ndarray:
        return np.full(count, self.value)

    def choice(self, _: tuple, count: int) -> np.ndarray:
        return np.full(count, self.sign)


def scene(side: int, seed: int, height: int | None = None) -> Image.Image:
    """Return an image with the smooth shades, edges and noise of a photograph."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    image = np.asarray(
        small.resize((side, height or side), Image.Resampling.BICUBIC).filter(ImageFilter.SHARPEN),
        dtype=np.int16,
    ).copy()
    image[side // 3 : side // 2, side // 4 : side // 2] //= 3
    return Image.fromarray((image + rng.integers(-6, 7, image.shape)).clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("severity", "name", "weakest", "strongest"),
    [
        (10, "posterize", 4, 1),
        (9, "posterize", 4, 1),
        (10, "rotate", 0, 29),
        (9, "rotate", 0, 26),
        (10, "solarize", 254, 1),
        (9, "solarize", 254, 26),
        (10, "shear_x", 0.003, 0.3),
        (9, "shear_y", 0.003, 0.27),
        (10, "translate_x", 0, 58),
        (9, "translate_y", 0, 52),
    ],
)
def test_ranges_are_the_published_ones(severity, name, weakest, strongest):
    method = RandAugment(severity=severity)
    assert abs(method.values(name, 176, Fixed(0.0), 1)[0]) == pytest.approx(weakest)
    assert abs(method.values(name, 176, Fixed(1 - 1e-9), 1)[0]) == pytest.approx(
        strongest, abs=1e-6
    )
    if name in ("rotate", "shear_x", "translate_x"):
        assert method.values(name, 176, Fixed(1 - 1e-9, -1), 1)[0] == pytest.approx(
            -strongest, abs=1e-6
        )


@pytest.mark.parametrize(
    ("severity", "name", "low", "high"),
    [
        (10, "color", 0.1, 10),
        (10, "contrast", 0.1, 10),
        (10, "sharpness", 0.1, 10),
        (10, "brightness", 0.1, 7.5),
        (9, "color", 0.19, 9),
        (9, "contrast", 0.19, 9),
        (9, "sharpness", 0.19, 9),
        (9, "brightness", 0.19, 6.75),
    ],
)
def test_enhancement_factors_are_around_one_half_of_the_time_each_way(severity, name, low, high):
    factors = RandAugment(severity=severity).values(name, 176, np.random.default_rng(0), 40_000)
    assert low <= factors.min() < low + 0.01
    assert high - 0.01 < factors.max() <= high
    # three quarters of a factor may be below one
    lighter = (severity - 1 / 0.75) / (severity - 1) if name == "brightness" else 1
    assert (factors > 1).mean() == pytest.approx(0.5 * lighter, abs=0.0125)  # five standard errors


def test_brightness_quirk_darkens_some_images_that_should_be_lightened():
    factors = RandAugment().values("brightness", 176, np.random.default_rng(0), 40_000)
    assert ((factors > 0.75) & (factors < 1)).any()
    original = RandAugment(augmentation_set="original").values(
        "brightness", 176, np.random.default_rng(0), 40_000
    )
    assert (original.min(), original.max()) == (
        pytest.approx(0.118, abs=1e-3),
        pytest.approx(1.9, abs=1e-3),
    )


@pytest.mark.parametrize(("augmentation_set", "operations"), [("all", 13), ("safe", 9)])
@pytest.mark.parametrize("placement", ["sample", "batch"])
def test_every_operation_of_a_set_is_drawn_equally_often(
    placement, augmentation_set, operations, now_at, monkeypatch
):
    drawn = Counter()
    for name in IMAGE_OPS:
        monkeypatch.setitem(
            IMAGE_OPS, name, lambda image, _, name=name: drawn.update([name]) or image
        )
        monkeypatch.setitem(
            PIXEL_OPS,
            name,
            lambda images, _, name=name: drawn.update([name] * len(images)) or images.clone(),
        )
    method, now = RandAugment(augmentation_set=augmentation_set, placement=placement), now_at()
    if placement == "batch":
        method.augment_pixels(torch.zeros(500 * operations, 3, 1, 1, dtype=torch.uint8), now)
    else:
        augment, image = method.augment_sample(), Image.new("RGB", (1, 1))
        for _ in range(500 * operations):
            augment(image, now.rng)
    assert len(drawn) == operations
    assert all(abs(count - 500) < 110 for count in drawn.values())  # five standard errors
    assert ("color" in drawn) == (augmentation_set != "safe")


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [("solarize", 128, [0, 100, 127, 0]), ("posterize", 1, [0, 0, 128, 128])],
)
def test_worked_values_of_solarize_and_posterize(name, value, result):
    pixels = np.array([0, 100, 128, 255], dtype=np.uint8).reshape(1, 4, 1).repeat(3, axis=2)
    assert np.asarray(IMAGE_OPS[name](Image.fromarray(pixels), value))[0, :, 0].tolist() == result
    batched = PIXEL_OPS[name](
        torch.from_numpy(pixels.copy()).unsqueeze(0), torch.tensor([float(value)])
    )
    assert batched[0, 0, :, 0].tolist() == result


def test_a_positive_translation_moves_content_to_the_left():
    row = np.arange(10, 90, 10, dtype=np.uint8).reshape(1, 8, 1).repeat(3, axis=2)
    moved = np.asarray(IMAGE_OPS["translate_x"](Image.fromarray(row), 2))
    assert moved[0, :, 0].tolist() == [30, 40, 50, 60, 70, 80, 0, 0]


@pytest.mark.parametrize("size", [(56, None), (40, 33)], ids=["square", "wide"])
@pytest.mark.parametrize("name", IMAGE_OPS)
def test_device_pixels_are_pillows_to_one_grey_level(name, size):
    images = [scene(size[0], seed, size[1]) for seed in range(3)] + [
        Image.new("RGB", (size[0], size[1] or size[0]), (9, 120, 250))
    ]
    rng = np.random.default_rng(3)
    values = np.concatenate(
        [
            RandAugment().values(name, size[0], draws, 1)
            for draws in (Fixed(0.0), Fixed(1 - 1e-9), Fixed(1 - 1e-9, -1))
        ]
        + [RandAugment().values(name, size[0], rng, 5)]
    )
    pixels = torch.stack([torch.from_numpy(np.array(image)) for image in images])
    before = pixels.clone()
    for value in values.astype(np.float32):
        expected = np.stack(
            [np.asarray(IMAGE_OPS[name](image, float(value))) for image in images]
        ).astype(int)
        result = (
            PIXEL_OPS[name](pixels, torch.full((len(images),), float(value))).numpy().astype(int)
        )
        assert abs(result - expected).max() <= 1, f"{name} {value}"
    assert torch.equal(pixels, before)


def pillow_differs(name: str, images: list[Image.Image], value: float) -> int:
    """Return the largest difference in grey levels between the device's operation and Pillow's."""
    ours = PIXEL_OPS[name](
        torch.stack([torch.from_numpy(np.array(image)) for image in images]),
        torch.full((len(images),), value),
    )
    theirs = np.stack([np.asarray(IMAGE_OPS[name](image, value)) for image in images]).astype(int)
    return abs(theirs - ours.numpy()).max()


def test_greys_at_one_half_are_rounded_up_as_pillow_rounds_them():
    red, green = np.divmod(np.arange(65536), 256)
    blue = (32768 - 19595 * red - 38470 * green) * pow(7471, -1, 65536) % 65536
    halves = np.stack([red, green, blue], axis=1)[blue < 256]
    # at ten times the distance from grey, a level of grey is ten of the result
    assert len(halves) > 100
    assert pillow_differs("color", [Image.fromarray(halves[None].astype(np.uint8))], 10.0) <= 1


def test_the_mean_grey_is_that_of_rounded_greys_as_pillow_takes_it():
    images = [
        Image.fromarray(np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8))
        for seed in range(300)
    ]
    assert pillow_differs("contrast", images, 10.0) <= 1


@pytest.mark.parametrize("name", IMAGE_OPS)
def test_pixels_of_photographs_are_pillows_to_one_grey_level(name, photographs):
    values = np.concatenate(
        [
            RandAugment().values(name, 64, draws, 1)
            for draws in (Fixed(0.0), Fixed(1 - 1e-9), Fixed(0.6, -1))
        ]
    )
    for path in photographs:
        image = Image.open(path).convert("RGB").resize((64, 64))
        for value in values.astype(np.float32):
            assert pillow_differs(name, [image], float(value)) <= 1, (path, value)


def test_each_image_of_a_batch_has_its_own_value():
    pixels = torch.stack([torch.from_numpy(np.array(scene(32, 0)))] * 3)
    for name, values in (
        ("rotate", [-20.0, 0.0, 20.0]),
        ("shear_y", [-0.2, 0.1, 0.2]),
        ("translate_y", [-3.0, 0.0, 9.0]),
    ):
        together = PIXEL_OPS[name](pixels, torch.tensor(values))
        alone = torch.cat([PIXEL_OPS[name](pixels[:1], torch.tensor([value])) for value in values])
        assert torch.equal(together, alone)


@pytest.mark.parametrize("depth", [1, 3])
def test_batch_placement_changes_a_copy_and_keeps_form(depth, now_at):
    pixels = torch.stack(
        [torch.from_numpy(np.array(scene(32, seed))) for seed in range(20)]
    ).permute(0, 3, 1, 2)
    before = pixels.clone()
    method = RandAugment(depth=depth, placement="batch")
    result = method.augment_pixels(pixels, now_at(3))
    assert (result.shape, result.dtype) == (pixels.shape, torch.uint8)
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(pixels, before)
    assert torch.equal(result, method.augment_pixels(pixels, now_at(3)))
    assert (result != pixels).flatten(1).any(1).sum() > 15


def test_batch_placement_gives_what_pillow_gives_for_the_same_draws(now_at):
    images = [scene(48, seed) for seed in range(26)]
    pixels = torch.stack([torch.from_numpy(np.array(image)) for image in images]).permute(
        0, 3, 1, 2
    )
    result = RandAugment(placement="batch").augment_pixels(pixels, now_at(7)).permute(0, 2, 3, 1)
    now: Now = now_at(7)
    chosen = now.rng.integers(13, size=26)
    for number, name in enumerate(SETS["all"]):
        members = np.flatnonzero(chosen == number)
        for member, value in zip(
            members, RandAugment().values(name, 48, now.rng, len(members)), strict=True
        ):
            expected = np.asarray(IMAGE_OPS[name](images[member], float(value))).astype(int)
            assert abs(result[member].numpy() - expected).max() <= 1, name


@pytest.mark.parametrize(
    ("placement", "sample_ops", "hook"),
    [
        ("auto", True, "augment_sample"),
        ("auto", False, "augment_pixels"),
        ("sample", False, "augment_sample"),
        ("batch", True, "augment_pixels"),
    ],
)
def test_placement_decides_the_hook(placement, sample_ops, hook):
    method = RandAugment(placement=placement).resolved(sample_ops)
    assert [name for name in ("augment_sample", "augment_pixels") if method.provides(name)] == [
        hook
    ]
