"""The cross-entropy kernels against float64."""

import pytest
import torch

from resnet_recipes.ops import cross_entropy
from resnet_recipes.ops.kernels import cross_entropy as kernels


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(("rows", "classes"), [(3, 7), (2, 1024), (5, 1500), (1, 1)])
def test_loss_and_gradient_match_float64(rows, classes, binary):
    torch.manual_seed(0)
    logits, targets = 3 * torch.randn(rows, classes) - 7, torch.rand(rows, classes)
    exact = logits.double().requires_grad_()
    expected = (
        cross_entropy.plain(exact, targets, binary, rows)
        if not binary
        else (torch.nn.functional.softplus(exact) - exact * targets.double()).sum() / rows
    )
    (expected * 0.3).backward()
    loss = kernels.forward(logits, targets, binary, rows)
    dx = kernels.backward(torch.tensor(0.3), logits, targets, binary, rows)
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert float((dx - exact.grad).norm()) <= 1e-6 * float(exact.grad.norm()) + 1e-12


def test_extreme_logits_have_a_finite_loss():
    logits, targets = torch.tensor([[200.0, -200.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    for binary, expected in ((True, 0.6931472), (False, 0.0)):
        assert float(kernels.forward(logits, targets, binary, 1.0)) == pytest.approx(
            expected, abs=1e-6
        )
        assert bool(
            kernels.backward(torch.tensor(1.0), logits, targets, binary, 1.0).isfinite().all()
        )
