"""Bicubic interpolation, which some baselines ask for, from .beton files."""

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from resnet_recipes.data import measure, open_train
from resnet_recipes.data.base import DataConfig, Share
from resnet_recipes.data.beton.file import RAW, Beton, open_beton
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.images import native
from resnet_recipes.data.native.library import why_not
from resnet_recipes.data.order import shuffled

TRAIN = 37


@pytest.fixture(params=["engine", "python"], autouse=True)
def decoded_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode by the native engine, or in Python."""
    if request.param == "python":
        monkeypatch.setattr(native, "why_not", lambda: "was not built")
    elif why_not():
        pytest.skip("the native library was not built")


def config(root: Path, **changes: object) -> DataConfig:
    """Return settings for small images of whole decoded files."""
    small = {
        "train_size": 32,
        "eval_resize": 40,
        "eval_size": 32,
        "workers": 1,
        "reduced_decode": False,
    }
    return DataConfig(**{"backend": "ffcv", "root": str(root)} | small | changes)


def batches(
    settings: DataConfig, share: Share, steps: int, first: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pixels [N, S, S, 3] and labels of some steps."""
    loader = open_train(settings, measure(settings), share, None)
    try:
        return [
            (batch.pixels.permute(0, 2, 3, 1).numpy().copy(), batch.labels.numpy().copy())
            for batch in itertools.islice(loader.batches(first), steps)
        ]
    finally:
        loader.close()


def stored(beton: Beton) -> list[np.ndarray]:
    """Return what the samples of a file decode to."""
    samples = [beton.sample(index) for index in range(len(beton))]
    return [
        data.reshape(*size, 3)
        if mode == RAW
        else np.asarray(Image.open(io.BytesIO(data.tobytes())).convert("RGB"))
        for data, size, mode in zip(samples, beton.sizes.tolist(), beton.modes, strict=True)
    ]


def test_bicubic_pixels_are_torchvisions(betons):
    share, settings = Share(0, 1, TRAIN, 4, seed=5), config(betons, interpolation="bicubic")
    ((pixels, _),) = batches(settings, share, 1)
    order = shuffled(5, 0, TRAIN)
    images = stored(open_beton(betons / "train.beton"))
    sizes = np.array([images[index].shape[:2] for index in order])
    boxes, mirrored, bicubic = TrainCrop.of(settings, share).cuts(
        0, order, np.zeros(TRAIN, np.int64), sizes
    )
    assert bicubic.all()
    for place, index in enumerate(order):
        image = Image.fromarray(images[index])
        cut = functional.resized_crop(
            image, *boxes[place].tolist(), [32, 32], InterpolationMode.BICUBIC
        )
        theirs = functional.hflip(cut) if mirrored[place] else cut
        assert np.abs(pixels[place].astype(int) - np.asarray(theirs)).max() <= 2
