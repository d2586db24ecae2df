"""The all-reduce of gradients, which overlaps with the backward pass."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

#: Bytes of gradients per all-reduce: few enough to start early, enough to use the bandwidth.
BUCKET_BYTES = 25 << 20

#: Alignment of each gradient, in values: 16 bytes, which kernels move at a time.
ALIGNMENT_VALUES = 4


class AllReduce:
    """Averages a model's gradients over ranks; sends each bucket as soon as it is full.

    DDP is not used: it copies and scales each gradient separately and cannot average gradients
    that a CUDA graph computed. Buckets and their order depend only on the model, so gradients are
    always summed in the same order. A resumed run is therefore bit-identical to an uninterrupted
    one. The constructor copies rank 0's weights to every rank. A single process sends nothing.
    """

    def __init__(self, model: nn.Module, compress: bool = False):
        self._buckets: list[_Bucket] = []
        self._sent, self._is_open = 0, False
        if dist.is_initialized():
            for params in _group_params(
                [p for p in reversed(list(model.parameters())) if p.requires_grad]
            ):
                self._buckets.append(bucket := _Bucket(params, compress))
                bucket.share_weights()
                for param in params:
                    param.register_post_accumulate_grad_hook(partial(self._on_gradient, bucket))

    @contextmanager
    def average(self, enabled: bool) -> Iterator[None]:
        """Average `.grad` over ranks by the end of the context, if enabled.

        Buckets are sent as soon as they are full.
        """
        self._sent, self._is_open = 0, enabled
        for bucket in self._buckets:
            bucket.missing = len(bucket.params)
        yield
        if enabled:
            # buckets that the gradient hooks did not fill
            for bucket in self._buckets[self._sent :]:
                bucket.send()
            for bucket in self._buckets:
                bucket.receive()
        self._is_open = False

    def _on_gradient(self, bucket: "_Bucket", _: Tensor) -> None:
        """Send full buckets, in the same order on every rank."""
        bucket.missing -= 1
        while (
            self._is_open
            and self._sent < len(self._buckets)
            and not self._buckets[self._sent].missing
        ):
            self._buckets[self._sent].send()
            self._sent += 1


class _Bucket:
    """Gradients that are sent together, as views of one flat tensor.

    Each view has the memory format of its parameter.
    """

    def __init__(self, params: list[Tensor], compress: bool):
        self.params, self.missing = params, 0
        sizes = [-(-param.numel() // ALIGNMENT_VALUES) * ALIGNMENT_VALUES for param in params]
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

        The same seed may give different weights on different processors.
        """
        torch._foreach_copy_(self._views, self.params)
        dist.broadcast(self._flat, src=0)
        torch._foreach_copy_(self.params, self._views)

    @torch.no_grad()
    def send(self) -> None:
        """Start the all-reduce; gradients are divided first so that the sum cannot overflow.

        A parameter that the loss does not depend on has a gradient of zero.
        """
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        torch._foreach_copy_(self._views, grads)
        self._flat.div_(dist.get_world_size())
        if self._wire is not self._flat:
            self._wire.copy_(self._flat)
        self._work = dist.all_reduce(self._wire, async_op=True)

    def receive(self) -> None:
        """Wait for the all-reduce and store the averages in `.grad`."""
        assert self._work is not None, "send() starts it"
        self._work.wait()
        if self._wire is not self._flat:
            self._flat.copy_(self._wire)
        for param, view in zip(self.params, self._views, strict=True):
            param.grad = view


def _group_params(params: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield groups of parameters of at most BUCKET_BYTES; a larger parameter is its own group."""
    group: list[Tensor] = []
    for param in params:
        if group and sum(p.nbytes for p in group) + param.nbytes > BUCKET_BYTES:
            yield group
            group = []
        group.append(param)
    if group:
        yield group
