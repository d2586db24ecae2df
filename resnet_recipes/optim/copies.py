"""Copies of weights in the dtype that a network computes in."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Copies(dict[Tensor, Tensor]):
    """The copy of each weight, cast from it where needed.

    Casting is the rule, because some of torch's operations, such as its fused optimizers, hide that
    they change a weight. Only after a step that has written both the weights and their copies is it
    left out, until torch changes a weight.
    """

    def __init__(self) -> None:
        super().__init__()
        self._versions: list[int] = []  # of the weights when both were written
        self._is_held = False

    @torch.no_grad()
    def renew(self) -> None:
        """Cast all weights in one launch, unless they and their copies are as `renewed` left them."""
        if not self._is_held and self._now() != self._versions:
            torch._foreach_copy_(list(self.values()), list(self))

    def renewed(self) -> None:
        """Note that every copy is that of its weight; about 10 us of the host's time."""
        self._versions = self._now()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Renew nothing inside: a CUDA graph leaves out the cast, which comes before each replay that needs it."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def _now(self) -> list[int]:
        return [weight._version for weight in self]
