"""CUDA graphs: of the gradient where launching its kernels keeps the GPU waiting, of teachers."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from resnet_recipes.base.text import Say
from resnet_recipes.methods.base import Batch
from resnet_recipes.ops.capture import capture
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

    def __init__(self, model: nn.Module, exchange: Exchange, note: Say):
        self._note = note
        self._params = [param for param in model.parameters() if param.requires_grad]
        self._exchange = exchange
        self._halfway = torch.cuda.Event()
        self._waits = 0  # gradients in a row for which the GPU waited
        self._form: Batch | None = None  # the shapes of the last gradient's batch
        self._graph: _Graph | None = None
        self._gradients: list[Tensor | None] = []  # that the graph computes
        self._is_possible = True

    def gradient(self, eager: Eager, batch: Batch, sync: bool = True) -> Tensor:
        """Leave a batch's gradient in `.grad` as `eager` would, averaged over ranks if asked to.

        Return its losses.
        """
        if is_new := (form := batch.map(lambda tensor: tensor.shape)) != self._form:
            # torch may give its memory back without waiting for the last replay
            if self._graph is not None:
                torch.cuda.synchronize()
            self._form, self._graph, self._gradients = form, None, []
        if self._params[0].grad is not None:  # a sum of several batches
            return eager(batch, sync, lambda: None)
        if (
            self._graph is None
            and self._waits >= WAITS_BEFORE_REPLAY
            and not is_new
            and self._is_possible
        ):
            self._capture(eager, batch)
        if self._graph is None:
            losses = eager(batch, sync, self._halfway.record)
            self._watch()
            return losses
        losses = self._graph.replay(batch)
        for param, gradient in zip(self._params, self._gradients, strict=True):
            param.grad = gradient
        with self._exchange.averaging(sync):
            return losses

    def _watch(self) -> None:
        """Count gradients whose first half was finished before the host had issued the second."""
        if self._waits < WAITS_BEFORE_REPLAY:
            self._waits = self._waits + 1 if self._halfway.query() else 0
            if self._waits == WAITS_BEFORE_REPLAY and self._is_possible:
                self._note(
                    "The GPU runs kernels faster than the host launches them: from now on, "
                    "gradients are replayed as CUDA graphs."
                )

    def _capture(self, eager: Eager, batch: Batch) -> None:
        """Capture the gradient of batches like this one, if that is possible."""

        def gradient(*fields: Tensor) -> Tensor:
            return eager(Batch(*fields), False, lambda: None)

        self._graph = self.captured(gradient, batch, "The gradient", torch.cuda.graph_pool_handle())
        self._is_possible = self._graph is not None
        self._gradients = [param.grad for param in self._params if self._is_possible]
        for param in self._params:
            param.grad = None

    def captured(
        self,
        compute: Callable[..., Tensor],
        inputs: Sequence[Tensor | None],
        what: str,
        pool: tuple[int, int],
    ) -> "_Graph | None":
        """Return `compute` as a graph that replays it for inputs like these.

        If a graph cannot contain it, tell the user, and return None.
        """
        try:
            return _Graph(compute, inputs, pool)
        except Exception as error:  # whatever it is, it can be computed without a graph
            why = str(error).strip().partition("\n")[0]
            self._note(
                f"{what} cannot be captured as a CUDA graph, so its kernels are launched "
                f"one by one: {why}"
            )
        return None


class Replayed:
    """A frozen network that is replayed from its second call with images of a shape on.

    Always, because it takes as many launches as half a gradient. Only graphs of the current image
    size are kept, and share their memory.
    """

    def __init__(self, network: Callable[[Tensor], Tensor], graphs: Graphs):
        self._network, self._graphs = network, graphs
        self._found: dict[torch.Size, _Graph | None] = {}  # by shape; None: not captured yet
        self._side, self._pool, self._is_possible = 0, (0, 0), True

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits of images."""
        shape, side = images.shape, images.shape[-1]
        if side != self._side:
            # torch may give its memory back without waiting for the last replay
            if self._found:
                torch.cuda.synchronize()
            self._side, self._pool, self._found = side, torch.cuda.graph_pool_handle(), {}
        if shape not in self._found:
            self._found[shape] = None
        elif self._found[shape] is None and self._is_possible:
            graph = self._graphs.captured(self._network, [images], "The teacher", self._pool)
            self._found[shape], self._is_possible = graph, graph is not None
        graph = self._found[shape]
        return self._network(images) if graph is None else graph.replay([images])


class _Graph:
    """A computation as a CUDA graph: its inputs and its result keep their addresses."""

    def __init__(
        self,
        compute: Callable[..., Tensor],
        inputs: Sequence[Tensor | None],
        pool: tuple[int, int],
    ):
        self._inputs = [None if tensor is None else torch.empty_like(tensor) for tensor in inputs]
        with capture(pool) as self._graph:
            self._result = compute(*self._inputs)

    def replay(self, inputs: Sequence[Tensor | None]) -> Tensor:
        """Return the result for other inputs of the same shapes."""
        for place, tensor in zip(self._inputs, inputs, strict=True):
            if place is not None:
                place.copy_(tensor)
        self._graph.replay()
        return self._result.clone()
