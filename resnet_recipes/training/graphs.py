"""CUDA graphs for teachers and for gradients whose kernel launches are the bottleneck."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from resnet_recipes.base.text import Say, do_nothing, get_first_line
from resnet_recipes.methods.base import Batch
from resnet_recipes.ops.capture import capture
from resnet_recipes.training.all_reduce import AllReduce

#: Number of consecutive gradients that must keep the GPU waiting before gradients are replayed.
WAITS_BEFORE_REPLAY = 5

#: A function that adds a batch's gradient to `.grad`, averaged over ranks if the second argument is
#: True, and calls the third before the last backward pass.
EagerGradient = Callable[[Batch, bool, Callable[[], object]], Tensor]


class GradientGraphs:
    """Detects when the host is the bottleneck, and replays gradients from then on.

    A replay takes one launch and a copy of each input, and its results are bit-identical.

    Only the graph of the current image size is kept, with its own memory. At a new size the first
    gradient is computed eagerly, which compiles kernels and selects convolution algorithms. The
    second gradient is captured. If the capture fails, gradients are computed eagerly, with a note.
    The optimizer and the input stay outside the graph: they need few launches and depend on
    numbers that change every step.
    """

    def __init__(self, model: nn.Module, all_reduce: AllReduce, note: Say):
        self._note = note
        self._params = [param for param in model.parameters() if param.requires_grad]
        self._all_reduce = all_reduce
        self._halfway = torch.cuda.Event()
        self._wait_count = 0  # consecutive gradients that kept the GPU waiting
        self._shapes: list[torch.Size | None] = []  # shapes of the last gradient's batch
        self._graph: _Graph | None = None
        self._gradients: list[Tensor | None] = []  # outputs of the graph, by parameter
        self._can_capture = True

    def compute(self, eager: EagerGradient, batch: Batch, sync: bool) -> Tensor:
        """Add a batch's gradient to `.grad`, averaged over ranks if `sync`.

        Replays the graph if there is one and `.grad` is empty, otherwise calls `eager`. Returns the
        losses, float32 [N].
        """
        shapes = [None if tensor is None else tensor.shape for tensor in batch]
        if is_new := shapes != self._shapes:
            # torch may free the graph's memory without waiting for the last replay
            if self._graph is not None:
                torch.cuda.synchronize()
            self._shapes, self._graph, self._gradients = shapes, None, []
        if self._params[0].grad is not None:  # the gradient accumulates over several batches
            return eager(batch, sync, do_nothing)
        if (
            self._graph is None
            and self._wait_count >= WAITS_BEFORE_REPLAY
            and not is_new
            and self._can_capture
        ):
            self._capture(eager, batch)
        if self._graph is None:
            losses = eager(batch, sync, self._halfway.record)
            self._watch()
            return losses
        losses = self._graph.replay(batch)
        for param, gradient in zip(self._params, self._gradients, strict=True):
            param.grad = gradient
        with self._all_reduce.average(sync):
            return losses

    def _watch(self) -> None:
        """Count gradients whose first half finished before the host had issued the second half."""
        if self._wait_count < WAITS_BEFORE_REPLAY:
            self._wait_count = self._wait_count + 1 if self._halfway.query() else 0
            if self._wait_count == WAITS_BEFORE_REPLAY and self._can_capture:
                self._note(
                    "The GPU runs kernels faster than the host launches them: from now on, "
                    "gradients are replayed as CUDA graphs."
                )

    def _capture(self, eager: EagerGradient, batch: Batch) -> None:
        def compute(*fields: Tensor) -> Tensor:
            return eager(Batch(*fields), False, do_nothing)

        self._graph = self.try_capture(
            compute, batch, "The gradient", torch.cuda.graph_pool_handle()
        )
        self._can_capture = self._graph is not None
        self._gradients = [param.grad for param in self._params if self._can_capture]
        for param in self._params:
            param.grad = None

    def try_capture(
        self,
        compute: Callable[..., Tensor],
        inputs: Sequence[Tensor | None],
        what: str,
        pool: tuple[int, int],
    ) -> "_Graph | None":
        """Return a graph that replays `compute` for inputs of these shapes.

        None if the capture fails, with a note that names `what`.
        """
        try:
            return _Graph(compute, inputs, pool)
        except Exception as error:  # torch may raise any exception; no graph is needed
            self._note(
                f"{what} cannot be captured as a CUDA graph, so its kernels are launched "
                f"one by one: {get_first_line(error)}"
            )
        return None


class ReplayedNetwork:
    """A frozen network that is replayed from the second call with the same image shape.

    It does not wait for a bottleneck, because a call takes half as many launches as a gradient.
    Only graphs of the current image size are kept; they share memory.
    """

    def __init__(self, network: Callable[[Tensor], Tensor], graphs: GradientGraphs):
        self._network, self._graphs = network, graphs
        self._by_shape: dict[torch.Size, _Graph | None] = {}  # None: not captured
        self._image_size = 0
        self._pool = (0, 0)
        self._can_capture = True

    def __call__(self, images: Tensor) -> Tensor:
        shape = images.shape
        image_size = images.shape[-1]
        if image_size != self._image_size:
            # torch may free their memory without waiting for the last replay
            if self._by_shape:
                torch.cuda.synchronize()
            self._image_size, self._by_shape = image_size, {}
            self._pool = torch.cuda.graph_pool_handle()
        if shape not in self._by_shape:
            self._by_shape[shape] = None
        elif self._by_shape[shape] is None and self._can_capture:
            graph = self._graphs.try_capture(self._network, [images], "The teacher", self._pool)
            self._by_shape[shape] = graph
            self._can_capture = graph is not None
        graph = self._by_shape[shape]
        return self._network(images) if graph is None else graph.replay([images])


class _Graph:
    """A computation as a CUDA graph. Its inputs and its result have fixed addresses."""

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
        for buffer, tensor in zip(self._inputs, inputs, strict=True):
            if buffer is not None:
                assert tensor is not None, "the graph would read the tensor of an earlier call"
                buffer.copy_(tensor)
        self._graph.replay()
        return self._result.clone()
