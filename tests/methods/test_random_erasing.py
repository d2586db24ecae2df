"""RandomErasing against the box rules of torchvision."""

import numpy as np
import torch
from torchvision.transforms import RandomErasing as Torchvision

from resnet_recipes.methods.random_erasing import RandomErasing
from tests.methods.inputs import make_batch, make_now

#: Values that the settings must reject.
WRONG = {
    "p": [-0.1, 1.1],
    "scale": [(0.3, 0.1), (0.0, 0.5), (0.1, 1.5)],
    "ratio": [(3.0, 0.3), (0.0, 1.0)],
}

#: Methods that change the place or size of the box, or its content.
DOES_NOT_COMMUTE = {"random_translation", "colout", "progressive_resizing"}


def test_erased_pixels_are_one_box_of_zeros():
    batch = make_batch(examples=16)
    result = RandomErasing(p=1.0).transform_batch(batch, make_now())
    for before, after in zip(batch.images, result.images, strict=True):
        gone = (after != before).any(0)
        assert gone.any()
        assert torch.equal(gone, gone.any(1).view(-1, 1) & gone.any(0))
        assert (after[:, gone] == 0).all()


def test_random_erasing_p_is_fraction_of_erased_images():
    boxes = RandomErasing(p=0.1).sample_boxes(20_000, 32, 32, make_now().rng)
    erased = boxes[1] > boxes[0]
    assert 0.09 < erased.mean() < 0.11
    top, bottom, _, _ = RandomErasing(p=0.0).sample_boxes(100, 32, 32, make_now().rng)
    assert (top == bottom).all()


def test_random_erasing_areas_and_positions_follow_torchvision():
    ours = RandomErasing(p=1.0).sample_boxes(4000, 64, 48, np.random.default_rng(0))
    torch.manual_seed(0)
    image = torch.zeros(3, 64, 48)
    theirs = np.array(
        [Torchvision.get_params(image, (0.02, 0.33), (0.3, 3.3), [0.0])[:4] for _ in range(2000)]
    ).T
    areas = (ours[1] - ours[0]) * (ours[3] - ours[2]), theirs[2] * theirs[3]
    for mine, other in (
        (areas[0], areas[1]),
        (ours[0], theirs[0]),
        (ours[2], theirs[1]),
        (ours[1] - ours[0], theirs[2]),
    ):
        assert abs(mine.mean() - other.mean()) < 0.06 * other.mean()
        assert abs(mine.std() - other.std()) < 0.08 * other.std()
    assert ours.min() >= 0
    assert (ours[1].max(), ours[3].max()) == (64, 48)


def test_random_erasing_ratio_is_height_over_width():
    method = RandomErasing(p=1.0, scale=(0.1, 0.1), ratio=(4.0, 4.0))
    top, bottom, left, right = method.sample_boxes(9, 40, 40, np.random.default_rng(0))
    # 160 pixels: 25.3 x 6.3
    assert {*(bottom - top).tolist()} == {25}
    assert {*(right - left).tolist()} == {6}
