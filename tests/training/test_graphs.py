"""Replayed gradients are bit-identical to eager gradients, with graphs of CPU operations."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from resnet_recipes.network.build import cast_by_stage
from resnet_recipes.training.graphs import WAITS_BEFORE_REPLAY, GradientGraphs, ReplayedNetwork
from resnet_recipes.training.run import Run
from tests.shared.checks import is_identical
from tests.training.recording import HOT, find_differing_tensors, record

#: Images smaller than in other tests.
SMALL_IMAGES = "data.train_size=16 data.eval_resize=16 data.eval_size=16"


class Recording(TorchDispatchMode):
    """A CUDAGraph for CPUs: operations with their input and output tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.replays = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        self.calls.append((operation, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        self.replays += 1
        for operation, args, kwargs, result in self.calls:
            for place, value in zip(
                tree_leaves(result), tree_leaves(operation(*args, **kwargs)), strict=True
            ):
                if isinstance(place, torch.Tensor) and place.data_ptr() != value.data_ptr():
                    place.copy_(value)


class SimulatedGpu:
    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.waits, self.capture_error, self.graphs, self.buffers = True, "", [], []
        self.synchronized = []  # number of graphs at each synchronization
        event = type("Event", (), {"record": lambda _: None, "query": lambda _: self.waits})
        for name, value in {
            "Event": event,
            "CUDAGraph": self.make,
            "graph": self.capture,
            "current_device": lambda: 0,
            "default_generators": [Mock()],
            "graph_pool_handle": lambda: (0, 1),
            "current_stream": lambda: None,
            "set_stream": lambda _: None,
            "synchronize": lambda: self.synchronized.append(len(self.graphs)),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)

    def make(self) -> Recording:
        self.graphs.append(Recording())
        return self.graphs[-1]

    @contextmanager
    def capture(self, graph: Recording, **_: object) -> Iterator[None]:
        """Record the operations in the context and undo them, since a GPU would not run them."""
        before = [buffer.clone() for buffer in self.buffers]
        state = torch.get_rng_state()
        if self.capture_error:
            raise RuntimeError(self.capture_error)
        with graph:
            yield
        torch.set_rng_state(state)
        torch._foreach_copy_(self.buffers, before)


@pytest.fixture
def simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> SimulatedGpu:
    """A simulated GPU on which graphs of CPU operations are captured."""
    return SimulatedGpu(monkeypatch)


@pytest.fixture
def make_replayed_run(
    simulated_gpu: SimulatedGpu, make_run: Callable[..., Run]
) -> Callable[..., tuple[Run, list[str]]]:
    """Return a function that creates a run that may replay its gradients, and its notes."""

    def make(arguments: str = "") -> tuple[Run, list[str]]:
        run = make_run(arguments)
        texts = []
        if run.precision.dtype != torch.float32:
            cast_by_stage(run.model, run.precision.dtype)
        run.graphs = GradientGraphs(run.model, run.all_reduce, texts.append)
        simulated_gpu.buffers = list(run.model.buffers())
        return run, texts

    return make


@pytest.mark.parametrize(
    "arguments",
    [
        f"max_duration=16ba {SMALL_IMAGES} {HOT}",
        f"max_duration=9ba {SMALL_IMAGES} batch.bn_size=4 methods.ema.update_interval=2ba",
        "max_duration=10ba precision.dtype=bf16 methods.sam.interval=3 methods.bce_loss={}",
    ],
)
def test_replayed_run_is_bit_identical(arguments, make_replayed_run, make_run, simulated_gpu):
    ours = make_replayed_run(arguments)[0]
    theirs = make_run(arguments)
    losses = record(ours).losses
    assert is_identical(losses, record(theirs).losses)
    assert sum(graph.replays for graph in simulated_gpu.graphs) >= 4
    assert find_differing_tensors(ours, theirs) == []


def test_replayed_float16_uses_scale_of_step(make_replayed_run, make_run, simulated_gpu):
    arguments = (
        "max_duration=8ba precision.dtype=fp16 batch.global_size=2 batch.bn_size=2 "
        f"optimizer.lr=0.01 {SMALL_IMAGES}"
    )
    ours = make_replayed_run(arguments)[0]
    theirs = make_run(arguments)
    record(ours)
    record(theirs)
    assert simulated_gpu.graphs[0].replays == 8 - WAITS_BEFORE_REPLAY
    assert ours.precision.state_dict() == theirs.precision.state_dict()
    assert find_differing_tensors(ours, theirs) == []


def test_every_image_size_has_its_own_graph(make_replayed_run, simulated_gpu):
    run, texts = make_replayed_run(
        "max_duration=3ep methods.progressive_resizing.initial_scale=0.5 "
        "methods.progressive_resizing.delay=0.2dur "
        "methods.progressive_resizing.finetune=0.2dur"
    )
    record(run)
    sizes = len(set(run.plan.image_sizes))
    steps = run.plan.steps_per_epoch
    assert sizes == 3
    assert [graph.replays for graph in simulated_gpu.graphs] == [
        steps - WAITS_BEFORE_REPLAY,
        steps - 1,
        steps - 1,
    ]
    assert simulated_gpu.synchronized == [1, 2]  # before each graph except the last is discarded
    assert texts == [
        "The GPU runs kernels faster than the host launches them: from now on, gradients are "
        "replayed as CUDA graphs."
    ]


def test_graphs_wait_until_host_is_bottleneck(make_replayed_run, simulated_gpu):
    run, texts = make_replayed_run("max_duration=8ba")
    simulated_gpu.waits = False
    record(run)
    assert simulated_gpu.graphs == []
    assert texts == []


def test_failed_capture_computes_eagerly_with_note(make_replayed_run, make_run, simulated_gpu):
    ours = make_replayed_run("max_duration=9ba")[0]
    theirs = make_run("max_duration=9ba")
    texts: list[str] = []
    ours.graphs = GradientGraphs(ours.model, ours.all_reduce, texts.append)
    simulated_gpu.capture_error = "operation not permitted when stream is capturing\nand more"
    record(ours)
    record(theirs)
    assert texts[1:] == [
        "The gradient cannot be captured as a CUDA graph, so its kernels are launched one by one: "
        "operation not permitted when stream is capturing"
    ]
    assert len(simulated_gpu.graphs) == 1
    assert find_differing_tensors(ours, theirs) == []


def test_second_gradient_of_method_is_computed_eagerly(make_replayed_run, make_run, simulated_gpu):
    """A method may compute a batch's gradient twice."""

    def compute_twice(compute: Callable, params: list, now: object) -> torch.Tensor:
        compute(sync=False)
        return compute()

    runs = make_replayed_run("max_duration=9ba")[0], make_run("max_duration=9ba")
    for run in runs:
        run.methods.gradient = compute_twice
        record(run)
    assert simulated_gpu.graphs[0].replays >= 2
    assert find_differing_tensors(*runs) == []


def test_replayed_network_has_graph_for_each_shape(make_replayed_run, simulated_gpu):
    run, texts = make_replayed_run()
    teacher = ReplayedNetwork(torch.no_grad()(run.model.eval()), run.graphs)
    sides = (16, 16, 32, 16)
    numbers = (4, 4, 2, 4, 2)
    for side in sides:
        for number in numbers:
            images = torch.randn(number, 3, side, side)
            assert torch.equal(teacher(images), run.model(images))
    # the first two have one graph per number of images, captured at the second call with it
    assert [graph.replays for graph in simulated_gpu.graphs] == [2 + 3, 1 + 2, 2, 1, 2, 1]
    assert simulated_gpu.synchronized == [2, 4]  # before graphs are discarded
    assert texts == []


def test_replayed_network_computes_eagerly_after_failed_capture(make_replayed_run, simulated_gpu):
    run, texts = make_replayed_run()
    teacher = ReplayedNetwork(run.model.eval(), run.graphs)
    images = torch.randn(2, 3, 16, 16)
    simulated_gpu.capture_error = "it reads a number back"
    assert all(torch.equal(teacher(images), run.model(images)) for _ in range(3))
    assert texts == [
        "The teacher cannot be captured as a CUDA graph, so its kernels are launched one by one: "
        "it reads a number back"
    ]


def test_replay_rejects_a_missing_tensor(make_replayed_run, simulated_gpu):
    """It would compute with the tensor of an earlier call."""
    run, _ = make_replayed_run()
    ones = torch.ones(2)
    graph = run.graphs.try_capture(lambda left, right: left + right, [ones, ones], "It", (0, 1))
    assert graph.replay([ones, 2 * ones]).tolist() == [3.0, 3.0]
    with pytest.raises(AssertionError, match="an earlier call"):
        graph.replay([ones, None])
