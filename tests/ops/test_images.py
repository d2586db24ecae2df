"""The images of a step, made in one pass or step by step, against plain loops."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from resnet_recipes.ops import images
from resnet_recipes.ops.images import Draft, made, mix, resize, select

NORM = torch.tensor([[-2.0, -1.5, -1.0], [0.01, 0.02, 0.03]])
ROWS, COLUMNS, PARTNERS = np.array([0, 2, 3]), np.array([1, 1, 5, 6]), np.array([1, 0])


@pytest.fixture
def pixels():
    """Return uint8 [2, 3, 5, 7]."""
    return torch.randint(
        256, (2, 5, 7, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    ).permute(0, 3, 1, 2)


def draft(pixels, operation=images.fused):
    """Return a draft of the images with nothing chosen yet."""
    return Draft(pixels, NORM, torch.float32, operation)


def test_every_value_is_a_normalised_pixel_mixed_with_its_partner(pixels):
    found = mix(select(draft(pixels), ROWS, COLUMNS), PARTNERS, 0.25).made()
    for n, c, y, x in np.ndindex(2, 3, 3, 4):
        own, partner = (
            float(pixels[i, c, ROWS[y], COLUMNS[x]]) * float(NORM[1, c]) + float(NORM[0, c])
            for i in (n, PARTNERS[n])
        )
        assert float(found[n, c, y, x]) == pytest.approx(0.75 * own + 0.25 * partner, abs=1e-5)


@pytest.mark.parametrize("operation", [images.plain, images.fused])
def test_a_draft_gives_the_same_images_as_tensors(operation, pixels):
    whole = draft(pixels, operation).made()

    def steps(images):
        mixed = mix(select(images, ROWS, COLUMNS), PARTNERS, 0.3)
        return select(mixed, np.array([2, 0]), np.arange(3))

    found, expected = steps(draft(pixels, operation)), steps(whole)
    assert found.shape == expected.shape
    assert torch.equal(made(found), expected)
    assert made(found).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("operation", [images.plain, images.fused])
def test_images_are_resized_after_their_lines_are_chosen_and_before_they_are_mixed(
    operation, pixels
):
    found = mix(resize(select(draft(pixels, operation), ROWS, COLUMNS), (2, 3)), PARTNERS, 0.3)
    assert isinstance(found, Draft)
    assert found.shape == (2, 3, 2, 3)
    small = F.interpolate(
        draft(pixels).made()[:, :, ROWS][..., COLUMNS].double(), (2, 3), mode="bilinear"
    )
    assert torch.allclose(
        found.made().double(), small.lerp(small[PARTNERS], 0.3), rtol=0, atol=1e-6
    )
    assert found.made().is_contiguous(memory_format=torch.channels_last)


def test_selecting_or_resizing_again_uses_the_resized_images(pixels):
    small = resize(draft(pixels), (4, 5))
    whole = small.made()
    assert torch.equal(select(small, np.array([0, 2]), np.arange(3)), whole[:, :, [0, 2], :3])
    assert torch.equal(resize(small, (2, 3)), F.interpolate(whole, (2, 3), mode="bilinear"))


def test_a_second_mix_uses_the_mixed_images(pixels):
    twice = lambda x: mix(mix(x, PARTNERS, 0.3), PARTNERS, 0.1)  # noqa: E731
    assert torch.equal(made(twice(draft(pixels))), twice(draft(pixels).made()))


@pytest.mark.parametrize("operation", [images.plain, images.fused])
def test_a_fourth_channel_is_zero(operation, pixels):
    three, four = (Draft(pixels, NORM, torch.float32, operation, channels) for channels in (3, 4))
    for change in (lambda x: x, lambda x: mix(resize(x, (3, 4)), PARTNERS, 0.3)):
        found = change(four)
        assert found.shape == found.made().shape
        assert torch.equal(found.made()[:, :3], change(three).made())
        assert not found.made()[:, 3].any()
        assert found.made().is_contiguous(memory_format=torch.channels_last)


def test_images_have_the_requested_dtype_and_are_rounded_once(pixels):
    half = Draft(pixels, NORM, torch.bfloat16).made()
    assert torch.equal(half, draft(pixels).made().bfloat16())


def test_registration_passes_opcheck(pixels):
    lines = torch.tensor([*ROWS, *COLUMNS, *PARTNERS], dtype=torch.int32)
    for chosen, size, channels in (
        (None, (5, 7), 3),
        (lines, (3, 4), 4),
        (lines[:7], (3, 4), 3),
        (lines, (2, 3), 4),
    ):
        call = (
            pixels,
            NORM,
            chosen,
            (5, 7) if chosen is None else (3, 4),
            size,
            0.2,
            torch.float16,
            channels,
        )
        torch.library.opcheck(torch.ops.resnet_recipes.images.default, call)
