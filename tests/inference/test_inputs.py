"""Preprocessing inside an export matches evaluation; networks that accept only some image sizes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from resnet_recipes.data.images.decode import Pixels
from resnet_recipes.data.images.python import crop_center
from resnet_recipes.inference.formats import compare_logits
from resnet_recipes.inference.inputs import (
    PreprocessingNetwork,
    is_any_size_accepted,
    is_size_accepted,
)
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.load import Network


def make_description(**changes: object) -> NetworkDescription:
    return NetworkDescription("resnet18", 4, eval_resize=40, eval_size=32, **changes)


@pytest.mark.parametrize("resize", [40, 35, 37])  # margins 4, 1.5, 2.5 px; halves to even
@pytest.mark.parametrize("fit", ["crop", "pad", "squash"])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(33, 47), (201, 90), (40, 40), (41, 44), (12, 9), (32, 160)])
def test_preprocessing_matches_evaluation_within_one_level(size, interpolation, fit, resize):
    pixels = np.random.default_rng(0).integers(256, size=(*size, 3), dtype=np.uint8)
    expected = crop_center(Pixels(pixels), resize, 32, interpolation == "bicubic", fit).astype(int)
    images = replace(
        make_description(eval_interpolation=interpolation, fit=fit), eval_resize=resize
    )
    inside = PreprocessingNetwork(nn.Identity(), images)
    outputs = inside.crop_center(torch.from_numpy(pixels)[None])[0].permute(1, 2, 0).numpy()
    apart = np.abs(outputs - expected)
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.1


@pytest.mark.parametrize("levels", [{}, {"mean": (127.5, 0.0, 99.0), "std": (127.5, 255.0, 20.0)}])
@pytest.mark.parametrize("flip", [False, True])
def test_preprocessing_probabilities_match_the_transform(flip, levels):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4)).eval()
    network = Network(model, make_description(flip=flip, fit="pad", **levels))
    pictures = torch.randint(256, (2, 50, 70, 3), dtype=torch.uint8)
    images = torch.stack(
        [network.transform(Image.fromarray(picture.numpy())) for picture in pictures]
    )
    logits = network(images)
    if flip:
        logits = (logits + network(images.flip(3))) / 2
    outputs = PreprocessingNetwork(model, network.about)(pictures)
    torch.testing.assert_close(outputs, logits.softmax(1), atol=1e-3, rtol=0)
    assert outputs.sum(1).tolist() == pytest.approx([1, 1])


class _PatchNetwork(nn.Module):
    """Rejects images whose size is not a multiple of 16 pixels, like vision transformers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 2, 16, 16)

    def forward(self, images):
        assert not any(side % 16 for side in images.shape[2:])
        return self.embed(images).mean((2, 3))


def test_is_any_size_accepted_rejects_a_patch_network():
    model = _PatchNetwork()
    assert is_size_accepted(model, 64, 96)
    assert not is_any_size_accepted(model)
    images = torch.randn(4, 3, 160, 160)
    assert compare_logits(model, model, images)[0] == 0
    assert is_any_size_accepted(nn.Sequential(nn.Conv2d(3, 2, 16, 16), nn.AdaptiveAvgPool2d(1)))
