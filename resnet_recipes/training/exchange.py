"""The exchange of gradients between ranks, while the backward pass is still running."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

#: Bytes of gradients that are sent together: few enough to start early, enough to fill a link.
BUCKET = 25 << 20

#: Each gradient begins at a multiple of so many values, 16 bytes, which kernels move at a time.
ALIGNED = 4


class Exchange:
    """Averages the gradients of a model over ranks, a bucket at a time, each as soon as it is full.

    DDP copies and scales each gradient separately; this does so bucket by bucket, and can also
    average gradients that a CUDA graph computed. Buckets and their order depend only on the model,
    so sums are always in the same order, and a resumed run is bit-identical to an uninterrupted
    one. A single process has nothing to exchange.
    """

    def __init__(self, model: nn.Module, compress: bool = False):
        self._buckets: list[_Bucket] = []
        self._sent, self._is_open = 0, False
        if dist.is_initialized():
            for params in _filled(
                [p for p in reversed(list(model.parameters())) if p.requires_grad]
            ):
                self._buckets.append(bucket := _Bucket(params, compress))
                bucket.share_weights()
                for param in params:
                    param.register_post_accumulate_grad_hook(partial(self._note, bucket))

    @contextmanager
    def averaging(self, enabled: bool) -> Iterator[None]:
        """Average `.grad` over ranks by the end of the context, if enabled.

        Send each bucket as soon as it is full.
        """
        self._sent, self._is_open = 0, enabled
        for bucket in self._buckets:
            bucket.missing = len(bucket.params)
        yield
        if enabled:
            # whose gradients did not come from a backward pass
            for bucket in self._buckets[self._sent :]:
                bucket.send()
            for bucket in self._buckets:
                bucket.receive()
        self._is_open = False

    def _note(self, bucket: "_Bucket", _: Tensor) -> None:
        """Send the buckets that are full, in an order that is the same on every rank."""
        bucket.missing -= 1
        while (
            self._is_open
            and self._sent < len(self._buckets)
            and not self._buckets[self._sent].missing
        ):
            self._buckets[self._sent].send()
            self._sent += 1


class _Bucket:
    """Gradients that are sent together.

    Views of one tensor, in the memory format of their parameters.
    """

    def __init__(self, params: list[nn.Parameter], compress: bool):
        self.params, self.missing = params, 0
        sizes = [-(-param.numel() // ALIGNED) * ALIGNED for param in params]
        self._flat = torch.zeros(sum(sizes), dtype=params[0].dtype, device=params[0].device)
        self._views = [
            part.as_strided(param.shape, param.stride())
            for part, param in zip(self._flat.split(sizes), params, strict=True)
        ]
        self._wire = self._flat.bfloat16() if compress else self._flat
        self._work: dist.Work | None = None

    @torch.no_grad()
    def share_weights(self) -> None:
        """Copy rank 0's weights to every rank.

        Different kinds of processors may draw different ones from one seed.
        """
        torch._foreach_copy_(self._views, self.params)
        dist.broadcast(self._flat, src=0)
        torch._foreach_copy_(self.params, self._views)

    @torch.no_grad()
    def send(self) -> None:
        """Start summing the gradients of all ranks, divided beforehand so that no sum overflows.

        A parameter that the loss does not depend on has a gradient of zero.
        """
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        torch._foreach_copy_(self._views, found)
        self._flat.div_(dist.get_world_size())
        if self._wire is not self._flat:
            self._wire.copy_(self._flat)
        self._work = dist.all_reduce(self._wire, async_op=True)

    def receive(self) -> None:
        """Leave the averages in `.grad`."""
        self._work.wait()
        if self._wire is not self._flat:
            self._flat.copy_(self._wire)
        for param, view in zip(self.params, self._views, strict=True):
            param.grad = view


def _filled(params: list[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Yield parameters in groups of at most BUCKET bytes; a larger one is a group of its own."""
    group: list[nn.Parameter] = []
    for param in params:
        if group and sum(p.nbytes for p in group) + param.nbytes > BUCKET:
            yield group
            group = []
        group.append(param)
    if group:
        yield group
