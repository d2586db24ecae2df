"""The Triton matrix products of the GPU session, against float64."""

from pathlib import Path

import pytest
import torch

SESSION = Path(__file__).parents[3] / "benchmarks" / "gpu_session"


@pytest.fixture
def gemms(monkeypatch):
    """Return the module as the session imports it."""
    monkeypatch.syspath_prepend(str(SESSION))
    import gemms

    return gemms


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_product_of_odd_sizes_equals_float64(parts, turned, gemms):
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn(rows, columns, generator=generator)
        if not is_turned
        else torch.randn(columns, rows, generator=generator).t()
        for (rows, columns), is_turned in zip(((70, 45), (45, 33)), turned, strict=True)
    )
    tile = gemms.Tile(32, 16, 16, 4, 1)
    product = gemms.multiply(left, right, parts, tile)
    expected = left.double() @ right.double()
    torch.testing.assert_close(product.double(), expected, atol=1e-4, rtol=0)


def test_matrix_products_of_1x1_convolution_equal_torch(gemms):
    images = torch.randn(2, 6, 5, 5)
    weights = torch.randn(8, 6, 1, 1)
    upstream = torch.randn(2, 8, 5, 5)
    operands = [x.to(memory_format=torch.channels_last) for x in (images, weights, upstream)]
    x, w = (tensor.double().requires_grad_() for tensor in (images, weights))
    y = torch.nn.functional.conv2d(x, w)
    y.backward(upstream.double())
    tile = gemms.Tile(16, 16, 16, 4, 1)
    products = gemms.list_products(*operands)
    expected = {
        "output": y.permute(0, 2, 3, 1).flatten(0, 2),
        "input's gradient": x.grad.permute(0, 2, 3, 1).flatten(0, 2),
        "weights' gradient": w.grad.flatten(1),
    }
    assert products.keys() == expected.keys()
    for name, product in products.items():
        actual = product(tile).double()
        torch.testing.assert_close(actual, expected[name].detach(), atol=1e-4, rtol=0)
