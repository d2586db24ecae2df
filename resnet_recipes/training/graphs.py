"""The gradient as a CUDA graph, where launching its kernels one by one keeps the GPU waiting."""

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor, nn

from resnet_recipes.methods.base import Batch
from resnet_recipes.training.exchange import Exchange

#: How many gradients in a row must keep the GPU waiting before they are replayed.
WAITS_BEFORE_REPLAY = 5

#: Add a batch's gradient to `.grad`, averaged over ranks if asked to; call the function before the
#: last backward pass.
Eager = Callable[[Batch, bool, Callable[[], object]], Tensor]


class Graphs:
    """Detects when the host is the bottleneck, and replays gradients from then on.

    One launch, bit-identical results.

    Only the graph of the current image size is kept, with its own memory. At a new size the first
    gradient is computed kernel by kernel, which compiles kernels and finds convolution algorithms;
    the second is captured. If capturing fails, gradients are computed kernel by kernel, and the
    user is told. Optimizer and input stay outside the graph: they need few launches, and depend on
    numbers that change with every step.
    """

    def __init__(self, model: nn.Module, exchange: Exchange):
        self.tell: Callable[[str], None] = lambda text: None  # shows the user a line
        self._params = [param for param in model.parameters() if param.requires_grad]
        self._exchange = exchange
        self._halfway = torch.cuda.Event()
        self._waits = 0  # gradients in a row for which the GPU waited
        self._form: Batch | None = None  # the shapes of the last gradient's batch
        self._graph: _Graph | None = None
        self._is_possible = True

    def gradient(self, eager: Eager, batch: Batch, sync: bool = True) -> Tensor:
        """Leave a batch's gradient in `.grad` as `eager` would, averaged over ranks if asked to.

        Return its losses.
        """
        if is_new := (form := batch.map(lambda tensor: tensor.shape)) != self._form:
            # torch may give its memory back without waiting for the last replay
            if self._graph is not None:
                torch.cuda.synchronize()
            self._form, self._graph = form, None
        if self._params[0].grad is not None:  # a sum of several batches
            return eager(batch, sync, lambda: None)
        if (
            self._graph is None
            and self._waits >= WAITS_BEFORE_REPLAY
            and not is_new
            and self._is_possible
        ):
            self._graph = self._captured(eager, batch)
        if self._graph is None:
            losses = eager(batch, sync, self._halfway.record)
            self._watch()
            return losses
        losses = self._graph.replay(batch)
        with self._exchange.averaging(sync):
            return losses

    def _watch(self) -> None:
        """Count gradients whose first half was finished before the host had issued the second."""
        if self._waits < WAITS_BEFORE_REPLAY:
            self._waits = self._waits + 1 if self._halfway.query() else 0
            if self._waits == WAITS_BEFORE_REPLAY and self._is_possible:
                self.tell(
                    "The GPU runs kernels faster than the host launches them: from now on, "
                    "gradients are replayed as CUDA graphs."
                )

    def _captured(self, eager: Eager, batch: Batch) -> "_Graph | None":
        stream, pool = torch.cuda.current_stream(), torch.cuda.graph_pool_handle()
        try:
            return _Graph(eager, self._params, batch, pool)
        except Exception as error:  # whatever it is, the gradient can be computed without a graph
            self._is_possible = False
            # older versions of torch leave that of the capture in place
            torch.cuda.set_stream(stream)
            why = str(error).strip().partition("\n")[0]
            self.tell(
                "The gradient cannot be captured as a CUDA graph, so its kernels are launched "
                f"one by one: {why}"
            )
        for param in self._params:
            param.grad = None
        # Torch may have left the pool open, and would then hold back memory that other streams have
        # used.
        with suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        return None


class _Graph:
    """One gradient as a CUDA graph: its batch, losses and gradients keep their addresses."""

    def __init__(
        self, eager: Eager, params: list[nn.Parameter], batch: Batch, pool: tuple[int, int]
    ):
        self._params, self._graph = params, torch.cuda.CUDAGraph()
        self._batch = batch.map(torch.empty_like)
        # Other threads may pin memory meanwhile.
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._losses = eager(self._batch, False, lambda: None)
        self._gradients = [param.grad for param in params]
        for param in params:
            param.grad = None

    def replay(self, batch: Batch) -> Tensor:
        """Leave the gradient of a batch in `.grad`; return its losses."""
        for place, tensor in zip(self._batch, batch, strict=True):
            if place is not None:
                place.copy_(tensor)
        self._graph.replay()
        for param, gradient in zip(self._params, self._gradients, strict=True):
            param.grad = gradient
        return self._losses.clone()
