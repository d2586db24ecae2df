"""What the packaged recipes make of an image file."""

from itertools import product

import numpy as np
from PIL import Image
from torchvision.transforms import v2

from resnet_recipes import data
from resnet_recipes.data.base import Share
from resnet_recipes.recipe.compose import compose

TWO = Share(0, 1, 2, 2, seed=0)


def test_pixels_of_training_and_evaluation_images(
    tmp_path,
):
    """Two images of 375 x 500 pixels, which differ from one pixel to the next, for each split."""
    for number, name in enumerate(("train/ant", "train/bee", "val/ant", "val/bee")):
        (tmp_path / name).mkdir(parents=True)
        coarse = np.random.default_rng(number).integers(0, 256, (75, 100, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
        image.save(tmp_path / name / "0.png")
    words = [f"data={tmp_path}", "data.backend=torchvision", "workers=0"]
    settings = compose("mild", words).recipe.data  # those of all three: test_recipes
    facts = data.measure(settings)
    train = data.open_train(settings, facts, TWO, None)
    evaluation = data.open_eval(settings, facts, TWO)
    assert next(train.batches()).pixels.shape == (2, 3, 176, 176)
    batch = next(iter(evaluation.batches())).pixels.permute(0, 2, 3, 1).numpy()
    assert batch.shape == (2, 224, 224, 3)
    for ours, path in zip(batch, ("val/ant/0.png", "val/bee/0.png"), strict=True):
        whole = np.asarray(v2.Resize(232, antialias=True)(Image.open(tmp_path / path)))
        assert whole.shape == (232, 309, 3)
        for corner in product(range(9), range(38, 47)):
            top, left = corner
            part = whole[top : top + 224, left : left + 224].astype(int)
            assert (np.abs(part - ours).max() <= 1) == (corner == (4, 42))
    train.close()
    evaluation.close()
