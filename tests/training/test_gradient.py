"""The gradient of a step.

What is said when memory does not suffice, and that it is known before the first step.
"""

from contextlib import nullcontext
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.methods.base import Batch
from resnet_recipes.training.exchange import Exchange
from resnet_recipes.training.gradient import Gradient
from resnet_recipes.training.loop import train
from resnet_recipes.training.run import Run
from tests.training.test_loop import HOT, Notes, differing


def grown(run: Run, limit: int) -> Run:
    """Let the network of a run need more memory than there is for images above `limit` pixels."""

    def refuse(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0].shape[-1] > limit:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2 GiB. And much more"
            )

    run.model.conv1.register_forward_pre_hook(refuse)
    return run


def test_a_rehearsal_leaves_nothing_behind(make_run):
    ours, theirs = (make_run(f"max_duration=4ba {HOT}") for _ in range(2))
    Gradient(ours).rehearse()
    assert all(param.grad is None for param in ours.model.parameters())
    for run in (ours, theirs):
        train(run, Notes(run))
    assert differing(ours, theirs) == []


def test_too_little_memory_for_the_largest_images_is_known_before_the_first_step(make_run):
    run = make_run(f"max_duration=3ep batch.bn_size=4 {HOT}")
    side = max(run.plan.sizes)
    grown(run, limit=side - 1)
    assert run.plan.pixels_at(0) < side
    said = (
        rf"a micro-batch of 4 images of {side} px does not fit on this GPU; "
        r"batch\.bn_size=2 needs less"
    )
    with pytest.raises(TrainingError, match=said):
        Gradient(run).rehearse()


def test_a_group_that_cannot_be_smaller_is_not_advised(make_run):
    run = grown(make_run("batch.bn_size=1"), limit=0)
    with pytest.raises(
        TrainingError, match=r"of 1 images of 32 px does not fit on this GPU; make them smaller"
    ):
        Gradient(run).rehearse()


def test_a_cpu_that_compiles_nothing_is_not_watched(make_run):
    run = make_run("max_duration=4ba")
    train(run, Notes(run))
    assert run.compiling.seconds() == 0


@pytest.mark.parametrize(("sync", "averages"), [(True, [False, True]), (False, [False, False])])
def test_only_the_last_micro_batch_of_a_synced_gradient_is_averaged(sync, averages, make_run):
    run, asked = make_run("batch.bn_size=8"), []
    run.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 7))
    run.exchange = Mock(averaging=lambda enabled: asked.append(enabled) or nullcontext())
    Gradient(run)(Batch.of(torch.randn(16, 3, 1, 1), torch.arange(16) % 7, 7), sync)
    assert asked == averages


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_step_follows_the_weighted_mean_of_its_losses(parts, make_run):
    run = make_run(f"batch.bn_size={16 // parts}")
    run.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 7))
    run.exchange = Exchange(run.model, False)
    batch = Batch.of(torch.randn(16, 3, 1, 1), torch.arange(16) % 7, 7)
    for weights in (None, torch.rand(16)):
        run.model.zero_grad()
        losses = Gradient(run)(batch._replace(weights=weights))
        found = run.model[1].weight.grad.clone()
        by_hand = F.cross_entropy(run.model(batch.images), batch.labels, reduction="none")
        assert torch.allclose(losses, by_hand)
        run.model.zero_grad()
        (by_hand * (1 if weights is None else weights)).mean().backward()
        assert torch.allclose(found, run.model[1].weight.grad, atol=1e-6)
