"""The gradient of a step: what is said when memory does not suffice, and that it is known before the first step."""

from collections.abc import Callable

import pytest
import torch

from resnet_recipes.errors import TrainingError
from resnet_recipes.train.gradient import gradient_of, rehearse
from resnet_recipes.train.loop import train
from resnet_recipes.train.run import Run
from tests.train.test_loop import HOT, Notes, differing


def grown(run: Run, limit: int) -> Run:
    """Let the network of a run need more memory than there is for images of more than `limit` pixels."""
    def refuse(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0].shape[-1] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. And much more")
    run.model.conv1.register_forward_pre_hook(refuse)
    return run


def test_a_rehearsal_leaves_nothing_behind(make_run: Callable[..., Run]):
    ours, theirs = (make_run(max_duration="4ba", methods=HOT) for _ in range(2))
    rehearse(ours)
    assert all(param.grad is None for param in ours.model.parameters())
    for run in (ours, theirs):
        train(run, Notes(run))
    assert differing(ours, theirs) == []


def test_too_little_memory_for_the_largest_images_is_known_before_the_first_step(make_run: Callable[..., Run]):
    resizing = {"progressive_resizing": {"initial_scale": 0.5, "delay": "0.2dur", "finetune": "0.2dur"}}
    run = make_run(max_duration="3ep", methods=resizing, batch={"bn_size": 4})
    side = max(run.plan.sizes)
    grown(run, limit=side - 1)
    assert run.plan.pixels_at(0) < side
    said = rf"a micro-batch of 4 images of {side} px does not fit on this GPU; batch\.bn_size=2 needs less"
    with pytest.raises(TrainingError, match=said):
        rehearse(run)


def test_a_group_that_cannot_be_smaller_is_not_advised(make_run: Callable[..., Run]):
    run = grown(make_run(batch={"bn_size": 1}), limit=0)
    with pytest.raises(TrainingError, match=r"of 1 images of 32 px does not fit on this GPU; make them smaller"):
        rehearse(run)


def test_a_cpu_that_compiles_nothing_is_not_watched(make_run: Callable[..., Run]):
    run = make_run(max_duration="4ba")
    train(run, Notes(run))
    assert run.compiling.seconds() == 0
    assert "watched" not in str(gradient_of(run))
