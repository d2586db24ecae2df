"""The gradient of a step, and the error before the first step if memory runs out."""

from contextlib import nullcontext
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.methods.base import Batch
from resnet_recipes.training.all_reduce import AllReduce
from resnet_recipes.training.gradient import GradientComputer
from resnet_recipes.training.run import Run
from tests.training.recording import HOT, find_differing_tensors, record


def limit_memory(run: Run, limit: int) -> Run:
    """Make the run's network exceed the memory for images above `limit` pixels."""

    def fail(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0].shape[-1] > limit:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2 GiB. And much more"
            )

    run.model.conv1.register_forward_pre_hook(fail)
    return run


def test_memory_check_leaves_run_unchanged(make_run):
    ours, theirs = (make_run(f"max_duration=4ba {HOT}") for _ in range(2))
    GradientComputer(ours).check_memory()
    assert all(param.grad is None for param in ours.model.parameters())
    for run in (ours, theirs):
        record(run)
    assert find_differing_tensors(ours, theirs) == []


def test_memory_check_reports_lack_for_largest_size(make_run):
    run = make_run(f"max_duration=3ep batch.bn_size=4 {HOT}")
    side = max(run.plan.image_sizes)
    limit_memory(run, limit=side - 1)
    assert run.plan.image_size_at(0) < side
    message = (
        rf"a micro-batch of 4 images of {side} px does not fit on this GPU\n"
        r"    use:   batch\.bn_size=2\n    hint:  a smaller micro-batch needs less memory"
    )
    with pytest.raises(TrainingError, match=message):
        GradientComputer(run).check_memory()


def test_memory_check_suggests_no_size_below_one(make_run):
    run = limit_memory(make_run("batch.bn_size=1"), limit=0)
    with pytest.raises(
        TrainingError,
        match=r"of 1 images of 32 px does not fit on this GPU\n    hint:  use smaller images",
    ):
        GradientComputer(run).check_memory()


def test_eager_gradient_on_cpu_is_not_timed(make_run):
    run = make_run("max_duration=4ba")
    record(run)
    assert run.compilation.seconds() == 0


#: Sixteen images of one pixel.
BATCH = Batch.of(torch.randn(16, 3, 1, 1), torch.arange(16) % 7, 7)


def make_linear(run: Run) -> Run:
    run.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 7))
    run.all_reduce = AllReduce(run.model, False)
    return run


@pytest.mark.parametrize(("sync", "averages"), [(True, [False, True]), (False, [False, False])])
def test_gradient_averages_only_last_micro_batch(sync, averages, make_run):
    run = make_linear(make_run("batch.bn_size=8"))
    calls = []
    run.all_reduce = Mock(average=lambda enabled: calls.append(enabled) or nullcontext())
    GradientComputer(run)(BATCH, sync)
    assert calls == averages


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_gradient_follows_weighted_mean_of_losses(parts, make_run):
    run = make_linear(make_run(f"batch.bn_size={16 // parts}"))
    for weights in (None, torch.rand(16)):
        run.model.zero_grad()
        losses = GradientComputer(run)(BATCH._replace(weights=weights))
        gradient = run.model[1].weight.grad.clone()
        expected = F.cross_entropy(run.model(BATCH.images), BATCH.labels, reduction="none")
        assert torch.allclose(losses, expected)
        run.model.zero_grad()
        (expected * (1 if weights is None else weights)).mean().backward()
        assert torch.allclose(gradient, run.model[1].weight.grad, atol=1e-6)
