"""The parts of a run before its first step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from resnet_recipes import ops
from resnet_recipes.data import synthetic
from resnet_recipes.data.images.python import TrainImages
from resnet_recipes.methods import ORDER
from resnet_recipes.network.fuse import FusedBatchNorm2d
from resnet_recipes.training.build import choose_searched_sizes
from resnet_recipes.training.evaluate import evaluate
from resnet_recipes.training.gradient import GradientComputer
from resnet_recipes.training.loop import StepReporter, train
from resnet_recipes.training.reporter import RunReporter
from resnet_recipes.training.run import Run
from tests.data.loaders import requires_decoder
from tests.shared.images import create_random_images
from tests.training.recording import record

#: All methods that can be in one recipe together, with image sizes that grow from the first epoch
#: and a SAM step every third step.
ALONE = {"trivial_augment", "increasing_randaugment", "cutmix", "mixup_or_cutmix", "distill"}
GROWING = "methods.progressive_resizing.delay=0dur methods.progressive_resizing.finetune=0.2dur"
ALL = " ".join(
    [
        *(f"methods.{method.name}={{}}" for method in ORDER if method.name not in ALONE),
        GROWING,
        "methods.colout.p_row=0.05 methods.colout.p_col=0.05 methods.sam.interval=3",
        "methods.ema.half_life=3ba methods.ema.update_interval=2ba",
    ]
)


def train_to_end(run: Run) -> Tensor:
    return torch.stack(record(run).losses)


@pytest.mark.parametrize("is_on", [True, False])
def test_network_features_have_memory_format_of_recipe(is_on, make_run):
    model = make_run(f"precision.channels_last={is_on}").model
    seen = []
    model.layer2.register_forward_hook(lambda module, inputs, output: seen.append(output))
    model(torch.randn(2, 3, 32, 32).to(memory_format=torch.channels_last))
    assert seen[0].is_contiguous(memory_format=torch.channels_last) is is_on


@requires_decoder
@pytest.mark.parametrize("method", ["randaugment", "trivial_augment"])
def test_decoder_augments_images_of_a_run(method, make_run, tmp_path, monkeypatch):
    """In Python that would be four times slower."""
    monkeypatch.delattr(TrainImages, "fill")
    images = create_random_images(tmp_path / "images", train=2)
    files = f"data.backend=torchvision data.root={images} data.workers=0"
    run = make_run(f"{files} schedule.warmup=0ba methods.{method}={{}}")
    assert next(run.train_data.batches()).pixels.shape == (16, 3, 32, 32)


def test_build_with_all_methods_keeps_channels_last(make_run):
    run = make_run(f"max_duration=1ba schedule.warmup=0ba {ALL}")
    wide = [
        module.weight
        for module in run.model.modules()
        if isinstance(module, nn.Conv2d) and module.kernel_size != (1, 1)
    ]
    assert len(wide) == 5
    assert all(
        weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
        for weight in wide
    )
    seen = []
    run.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    train(run, Mock(spec=StepReporter))
    assert [images.shape for images in seen] == [(16, 3, 16, 16)]
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_compiled_run_has_one_graph_and_equal_losses(make_run, monkeypatch):
    # one step per epoch, so that each step has another size
    monkeypatch.setattr(synthetic, "TRAIN_EXAMPLES", 16)
    arguments = (
        "max_duration=6ba data.train_size=64 data.eval_resize=72 data.eval_size=64 "
        f"batch.eval_size=50 {GROWING} methods.progressive_resizing.initial_scale=0.6 "
        "methods.blurpool={} methods.stochastic_depth={} methods.bce_loss={} "
        "methods.sam.interval=3 methods.ema.half_life=3ba methods.ema.update_interval=2ba"
    )
    expected = train_to_end(make_run(arguments))
    with count_graphs(monkeypatch) as graphs:
        run = make_run(f"precision.compile=true {arguments}")
        assert run.plan.image_sizes == (40, 44, 48, 56, 60, 64)
        compiled = train_to_end(run)
        trained = len(graphs)
        with run.methods.eval_weights(run.model):
            evaluate(run.model, run.eval_data, run.precision, run.plan.num_classes)
        assert torch._dynamo.utils.counters["graph_break"] == {}
    assert trained == 1
    assert len(graphs) == 2  # evaluation has a separate graph
    torch.testing.assert_close(compiled, expected, rtol=1e-5, atol=0)


@contextmanager
def count_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.fx.GraphModule]]:
    """Make `torch.compile` run graphs without generating kernels, and collect the graphs."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: list) -> Callable:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    # one graph for training, one for evaluation
    with torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        yield graphs
    torch.compiler.reset()


FUSED = ops.Operations(
    **{name: module.fused for name, module in ops.MODULES.items()}, notes=("a note",)
)


@pytest.mark.parametrize(
    ("arguments", "fused"),
    [("", True), ("precision.kernels='off'", False), ("precision.channels_last=false", False)],
)
def test_build_fuses_only_channels_last_if_enabled(arguments, fused, make_run, monkeypatch):
    monkeypatch.setattr(ops, "choose", lambda device, dtype: FUSED)
    run = make_run(arguments)
    assert any(isinstance(module, FusedBatchNorm2d) for module in run.model.modules()) is fused
    assert [*run.notes] == [*(FUSED.notes if fused else ())]


@pytest.mark.parametrize("is_on", [True, False])
def test_build_passes_compress_gradients_to_all_reduce(is_on, make_run, monkeypatch):
    all_reduce = Mock()
    monkeypatch.setattr("resnet_recipes.training.build.AllReduce", all_reduce)
    run = make_run(f"precision.compress_gradients={is_on}")
    all_reduce.assert_called_once_with(run.model, is_on)


@pytest.fixture(autouse=True)
def _restore_cudnn_benchmark() -> Iterator[None]:
    """Restore a global setting of torch that runs change."""
    before = torch.backends.cudnn.benchmark
    yield
    torch.backends.cudnn.benchmark = before


def make_sizes_plan(sizes: tuple[int, ...], images: int, last: float = 1.0) -> SimpleNamespace:
    """Return the parts of a plan that determine the searched sizes.

    `sizes` are by epoch, `images` is the number of images per rank and epoch.
    """
    steps = images // 256
    return SimpleNamespace(
        total_steps=round((len(sizes) - 1 + last) * steps),
        steps_per_epoch=steps,
        rank_size=256,
        image_sizes=sizes,
    )


def test_algorithm_search_chooses_sizes_with_many_pixels():
    # pixels per epoch, relative to 300,000 images of 224 px: 10% at 88 px, 17% at 112 px, 41% at
    # 176 px
    mild = make_sizes_plan((88,) * 6 + (112,) * 5 + (176,) * 3, 200_000)
    assert choose_searched_sizes(mild) == [176]
    assert choose_searched_sizes(make_sizes_plan((88,) * 11 + (112, 176), 200_000)) == [88]


def test_algorithm_search_counts_all_epochs_of_size():
    assert choose_searched_sizes(make_sizes_plan((224, 176, 224), 151_000)) == [224]
    assert choose_searched_sizes(make_sizes_plan((224, 176, 224), 151_000, last=0.9)) == []


def test_algorithm_search_is_set_before_size_starts(make_run):
    """Torch keeps the first algorithm for a shape, including that of the memory check."""
    run = make_run("max_duration=3ep methods.progressive_resizing.delay=0.2dur")
    seen = []
    small, *_, large = run.plan.image_sizes
    run.searched_sizes = [large]
    run.model.register_forward_pre_hook(
        lambda module, inputs: seen.append((inputs[0].shape[-1], torch.backends.cudnn.benchmark))
    )
    GradientComputer(run).check_memory()
    assert seen == [(large, True)]
    record(run)
    assert set(seen) == {(side, side == large) for side in run.plan.image_sizes}
    assert small != large


def test_evaluation_never_searches_for_algorithms(make_run):
    run = make_run()
    seen = []
    torch.backends.cudnn.benchmark = True
    run.model.register_forward_pre_hook(
        lambda module, inputs: seen.append(torch.backends.cudnn.benchmark)
    )
    RunReporter(run, None, None, Mock(return_value=False), Mock()).evaluate(1)
    assert set(seen) == {False}
