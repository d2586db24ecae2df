"""Cross-entropy as a registered operation, which matches torch on a CPU."""

import pytest
import torch

from resnet_recipes.ops import cross_entropy


def arguments(dtype=torch.float64):
    """Return logits and targets of four examples."""
    generator = torch.Generator().manual_seed(2)
    logits, targets = torch.randn(2, 4, 6, generator=generator, dtype=dtype)
    return logits, targets.softmax(1)


@pytest.mark.parametrize("binary", [True, False])
def test_the_gradient_matches_torch(binary):
    logits, targets = arguments()
    found, expected = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = cross_entropy.fused(found, targets, binary, 4.0)
    assert torch.equal(loss, cross_entropy.plain(logits, targets, binary, 4.0))
    (3 * loss).backward()
    (3 * cross_entropy.plain(expected, targets, binary, 4.0)).backward()
    assert torch.allclose(found.grad, expected.grad, rtol=1e-6)  # logits are float32 inside


@pytest.mark.parametrize("binary", [True, False])
def test_registration_passes_opcheck(binary):
    logits, targets = arguments(torch.float32)
    torch.library.opcheck(
        torch.ops.resnet_recipes.cross_entropy.default, (logits, targets, binary, 4.0)
    )
    backward = torch.tensor(1.0), logits, targets, binary, 4.0
    torch.library.opcheck(torch.ops.resnet_recipes.cross_entropy_backward.default, backward)
