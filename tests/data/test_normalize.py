"""Normalisation: the published vectors, one memory format."""

import pytest
import torch

from resnet_recipes.data.base import MEAN, STD, normalize

VECTORS = {
    0: (-2.11790, -2.03571, -1.80444),
    128: (0.07406, 0.20518, 0.42649),
    255: (2.24891, 2.42857, 2.64000),
}


@pytest.mark.parametrize(("value", "expected"), VECTORS.items())
def test_published_vectors(value, expected):
    images = normalize(torch.full((2, 3, 4, 5), value, dtype=torch.uint8))
    assert images.dtype == torch.float32
    assert images[1, :, 3, 4].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("memory", [torch.channels_last, torch.contiguous_format])
def test_result_is_channels_last_and_equal_to_the_formula(memory):
    pixels = torch.randint(0, 256, (3, 3, 7, 9), dtype=torch.uint8).contiguous(memory_format=memory)
    images = normalize(pixels)
    mean, std = (
        torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1) for values in (MEAN, STD)
    )
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(images.double(), (pixels.double() - mean) / std, atol=1e-6)
