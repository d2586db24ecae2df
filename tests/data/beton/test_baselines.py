"""What the baselines ask of the loader, from .beton files.

Repeated images and bicubic interpolation.
"""

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from resnet_recipes.data import measure, open_eval, open_train
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


def test_repeats_come_in_a_row_each_with_its_own_crop(betons):
    share, settings = Share(0, 1, global_size=12, eval_size=4, seed=5), config(betons, repeats=3)
    ((pixels, labels),) = batches(settings, share, 1)
    copies = pixels.reshape(4, 3, 32, 32, 3)
    assert (labels.reshape(4, 3) == labels.reshape(4, 3)[:, :1]).all()
    assert all(
        not np.array_equal(some[0], some[1]) and not np.array_equal(some[1], some[2])
        for some in copies
    )


@pytest.mark.parametrize("repeats", [3, 4])
def test_ranks_share_every_copy_and_resume_in_the_middle(repeats, betons):
    shares = [Share(rank, 2, global_size=12, eval_size=4, seed=5, groups=2) for rank in range(2)]
    together = []
    for share in shares:
        whole = batches(config(betons, repeats=repeats), share, 5)
        together += [whole[0][1]]
        resumed = batches(config(betons, repeats=repeats), share, 3, first=2)
        for (pixels, labels), (same, again) in zip(whole[2:], resumed, strict=True):
            assert np.array_equal(pixels, same)
            assert np.array_equal(labels, again)
    assert (np.bincount(np.concatenate(together)) % repeats == 0).all()


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


def test_bicubic_evaluation_differs_from_bilinear_alone_in_its_filter(betons):
    plain, smooth = (
        torch.cat(
            [
                batch.pixels.clone()
                for batch in open_eval(settings, measure(settings), Share(0, 1, 12, 4, 5)).batches()
            ]
        ).int()
        for settings in (config(betons), config(betons, eval_interpolation="bicubic"))
    )
    assert not torch.equal(plain, smooth)
    assert (plain - smooth).abs().float().mean() < 4
