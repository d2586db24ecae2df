"""What is ready before the first step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from resnet_recipes import ops
from resnet_recipes.data import synthetic
from resnet_recipes.methods import ORDER
from resnet_recipes.network.fuse import FusedBatchNorm2d
from resnet_recipes.training.evaluate import evaluate
from resnet_recipes.training.loop import train
from resnet_recipes.training.reporter import RunReporter
from resnet_recipes.training.run import Run

#: Every method that can be in one recipe with all others, images that grow from the first epoch on,
#: and a SAM step in every third.
ALL: dict[str, Any] = {
    method.name: {}
    for method in ORDER
    if method.name
    not in {
        "trivial_augment",
        "increasing_randaugment",
        "cutmix",
        "mixup_or_cutmix",
        "distill",
    }
} | {
    "colout": {"p_row": 0.05, "p_col": 0.05},
    "progressive_resizing": {"delay": "0dur", "finetune": "0.2dur"},
    "sam": {"interval": 3},
    "ema": {"half_life": "3ba", "update_interval": "2ba"},
}


def losses_of(run: Run) -> Tensor:
    """Train to the end and return the loss of every step."""
    reporter = Mock(spec=RunReporter)
    reporter.wants_to_stop.return_value = False
    train(run, reporter)
    return torch.stack([call.args[1] for call in reporter.step.call_args_list])


@pytest.mark.parametrize("wanted", [True, False])
def test_features_have_the_memory_format_of_the_recipe(wanted, make_run):
    model = make_run(precision={"channels_last": wanted}).model
    seen = []
    model.layer2.register_forward_hook(lambda module, inputs, output: seen.append(output))
    model(torch.randn(2, 3, 32, 32).to(memory_format=torch.channels_last))
    assert seen[0].is_contiguous(memory_format=torch.channels_last) is wanted


def test_convolutions_and_images_are_channels_last_with_every_method_on(make_run):
    run = make_run("max_duration=1ba schedule.warmup=0ba", methods=ALL)
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
    train(run, Mock(spec=RunReporter))
    assert [images.shape for images in seen] == [(16, 3, 16, 16)]
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_memory_format_does_not_change_what_the_network_says(make_run):
    surgery = {"blurpool": {}, "stochastic_depth": {"drop_rate": 0.1}, "bce_loss": {}}
    images = torch.randn(4, 3, 40, 40, generator=torch.Generator().manual_seed(0)).to(
        memory_format=torch.channels_last
    )
    nhwc, nchw = (
        make_run(precision={"channels_last": wanted}, methods=surgery).model.eval()(images)
        for wanted in (True, False)
    )
    assert nhwc.std() > 0.01
    torch.testing.assert_close(nhwc, nchw, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("methods", "sizes"),
    [
        (ALL, (36, 40, 48, 52, 56, 60)),
        ({}, (40, 44, 48, 56, 60, 64)),  # at full size the batch is not made of others' pixels
    ],
)
def test_a_compiled_run_is_one_graph_over_all_sizes_and_trains_as_the_plain_one(
    methods, sizes, make_run, monkeypatch
):
    # an epoch is one step, so that every step has another size
    monkeypatch.setattr(synthetic, "TRAIN_EXAMPLES", 16)
    growing = {"initial_scale": 0.6, "delay": "0dur", "finetune": "0.2dur"}
    changes = {
        "max_duration": "6ba",
        "data": {"train_size": 64, "eval_resize": 72, "eval_size": 64},
        "batch": {"eval_size": 50},
        "methods": methods | {"progressive_resizing": growing},
    }
    plain = losses_of(make_run(**changes))
    with counted_graphs(monkeypatch) as graphs:
        run = make_run("precision.compile=true", **changes)
        assert run.plan.sizes == sizes
        compiled = losses_of(run)
        trained = len(graphs)
        with run.methods.eval_weights(run.model):
            evaluate(run.model, run.eval_data, run.precision, run.plan.num_classes)
        assert torch._dynamo.utils.counters["graph_break"] == {}
    assert trained == 1
    assert len(graphs) == 2  # evaluation is a graph of its own
    torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=0)


@contextmanager
def counted_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.fx.GraphModule]]:
    """Make `torch.compile` run graphs as they are, without generating kernels, and collect them."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: list) -> Callable:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    # one for training, one for evaluation
    with torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        yield graphs
    torch.compiler.reset()


FUSED = ops.Operations(
    **{name: module.fused for name, module in ops.FUSED.items()}, notes=("a note",)
)


@pytest.mark.parametrize(
    ("precision", "fused"),
    [
        ({}, True),
        ({"kernels": "off"}, False),
        ({"channels_last": False}, False),
    ],
)
def test_fused_operations_are_for_channels_last_and_can_be_left_out(
    precision, fused, make_run, monkeypatch
):
    monkeypatch.setattr(ops, "choose", lambda device, dtype: FUSED)
    run = make_run(precision=precision)
    assert any(isinstance(module, FusedBatchNorm2d) for module in run.model.modules()) is fused
    assert run.notes == [*(FUSED.notes if fused else ())]


def test_a_run_with_fused_operations_has_the_losses_of_the_plain_one(make_run, monkeypatch):
    changes = {"max_duration": "4ba", "schedule": {"warmup": "0ba"}, "methods": ALL}
    expected = losses_of(make_run(**changes))
    monkeypatch.setattr(ops, "choose", lambda device, dtype: FUSED)
    torch.testing.assert_close(losses_of(make_run(**changes)), expected, rtol=1e-4, atol=1e-5)
