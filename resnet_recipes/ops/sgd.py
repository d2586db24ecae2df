"""A step of stochastic gradient descent with momentum, for many weights together."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim.sgd import sgd


def plain(
    weights: list[Tensor],
    grads: list[Tensor],
    means: list[Tensor],
    copies: list[Tensor],
    rate: float,
    kept: float,
    decay: float,
    momentum: float,
    nesterov: bool,
    scale: Tensor | None,
    overflow: Tensor | None,
) -> None:
    """Step float32 weights along their gradients in place, then cast each into its copy, if that is another tensor.

    With `g = grad + decay * w`: `m <- momentum * m + g`, then `w <- kept * w - rate * m`; with
    `nesterov`, `g + momentum * m` takes the place of the last m. Either `kept` is 1 or `decay` is
    0. `means` are the momenta, none if `momentum` is 0. `scale` and `overflow` are GradScaler's:
    gradients are divided by `scale`, and no weight or momentum changes unless `overflow` is 0.
    """
    if kept != 1:
        torch._foreach_mul_(weights, kept if overflow is None else 1 - (1 - kept) * (overflow == 0))
    sgd(
        weights,
        grads,
        list(means) or [None] * len(weights),
        fused=True,
        grad_scale=scale,
        found_inf=overflow,
        weight_decay=decay,
        momentum=momentum,
        lr=rate,
        dampening=0.0,
        nesterov=nesterov,
        maximize=False,
    )
    cast = [
        (copy, weight) for copy, weight in zip(copies, weights, strict=True) if copy is not weight
    ]
    if cast:
        torch._foreach_copy_(*map(list, zip(*cast, strict=True)))


def fused(
    weights: list[Tensor],
    grads: list[Tensor],
    means: list[Tensor],
    copies: list[Tensor],
    rate: float,
    kept: float,
    decay: float,
    momentum: float,
    nesterov: bool,
    scale: Tensor | None,
    overflow: Tensor | None,
) -> None:
    """Do the same in one launch that reads and writes every value once; torch does not see that the weights change.

    A gradient that is not aligned, or in another memory format than its weight, is copied. Raises
    RuntimeError for a momentum in another format.
    """
    from resnet_recipes.ops.kernels import sgd as kernels

    kernels.step(
        weights, grads, means, copies, rate, kept, decay, momentum, nesterov, scale, overflow
    )


def samples(
    generator: torch.Generator, dtype: torch.dtype
) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield small arguments that reach every variant: with momentum, Nesterov's, without; a scale, and an overflow."""
    device = generator.device
    shapes = (64, 32, 3, 3), (4099,), (7, 5)
    for kept, momentum, nesterov, overflow in (
        (0.8, 0.9, False, None),
        (1, 0.9, True, 0.0),
        (1, 0.0, False, 0.0),
        (0.8, 0.9, False, 1.0),
    ):
        weights, grads, means = (
            [torch.randn(shape, generator=generator, device=device) for shape in shapes]
            for _ in range(3)
        )
        copies = [weight.to(dtype) for weight in weights]
        # a scale of 1, because torch's operation also leaves the gradients divided by it
        scaler = (
            [None, None]
            if overflow is None
            else [torch.tensor(each, device=device) for each in (1.0, overflow)]
        )
        rule = 0.3, kept, 0.2 if kept == 1 else 0.0, momentum, nesterov
        yield [], [weights, grads, means if momentum else [], copies, *rule, *scaler]
