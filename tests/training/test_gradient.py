"""The gradient of a step.

What is said when memory does not suffice, and that it is known before the first step.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.methods.base import Batch
from resnet_recipes.training.gradient import eager, gradient_of, rehearse
from resnet_recipes.training.loop import train
from resnet_recipes.training.run import Run
from tests.training.test_loop import HOT, Notes, differing


class Arithmetic(TorchDispatchMode):
    """Notes the operations that compute with a single number, a loss."""

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.ndim == 0 and found.dtype == torch.float32:
            self.seen.append(func.overloadpacket.__name__)
        return found


def grown(run: Run, limit: int) -> Run:
    """Let the network of a run need more memory than there is for images above `limit` pixels."""

    def refuse(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0].shape[-1] > limit:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2 GiB. And much more"
            )

    run.model.conv1.register_forward_pre_hook(refuse)
    return run


def test_a_rehearsal_leaves_nothing_behind(make_run: Callable[..., Run]):
    ours, theirs = (make_run(max_duration="4ba", methods=HOT) for _ in range(2))
    rehearse(ours)
    assert all(param.grad is None for param in ours.model.parameters())
    for run in (ours, theirs):
        train(run, Notes(run))
    assert differing(ours, theirs) == []


def test_too_little_memory_for_the_largest_images_is_known_before_the_first_step(
    make_run: Callable[..., Run],
):
    resizing = {
        "progressive_resizing": {"initial_scale": 0.5, "delay": "0.2dur", "finetune": "0.2dur"}
    }
    run = make_run(max_duration="3ep", methods=resizing, batch={"bn_size": 4})
    side = max(run.plan.sizes)
    grown(run, limit=side - 1)
    assert run.plan.pixels_at(0) < side
    said = (
        rf"a micro-batch of 4 images of {side} px does not fit on this GPU; "
        r"batch\.bn_size=2 needs less"
    )
    with pytest.raises(TrainingError, match=said):
        rehearse(run)


def test_a_group_that_cannot_be_smaller_is_not_advised(make_run: Callable[..., Run]):
    run = grown(make_run(batch={"bn_size": 1}), limit=0)
    with pytest.raises(
        TrainingError, match=r"of 1 images of 32 px does not fit on this GPU; make them smaller"
    ):
        rehearse(run)


def test_a_cpu_that_compiles_nothing_is_not_watched(make_run: Callable[..., Run]):
    run = make_run(max_duration="4ba")
    train(run, Notes(run))
    assert run.compiling.seconds() == 0
    assert "watched" not in str(gradient_of(run))


@pytest.mark.parametrize(("parts", "expected"), [(1, []), (2, ["add", *["div"] * 4])])
def test_a_loss_is_divided_and_added_up_only_where_there_are_several(
    parts, expected, make_run: Callable[..., Run]
):
    run = make_run(batch={"bn_size": 16 // parts})
    run.methods.loss = lambda logits, _: logits.sum()
    images, labels = torch.randn(16, 3, 32, 32), torch.zeros(16, dtype=torch.int64)
    batch = Batch.of(images, labels, run.plan.num_classes)
    sums = [run.model(part.images).sum() for part in batch.split(parts)]
    with Arithmetic() as arithmetic:
        loss = eager(run, batch, sync=False)
    assert torch.equal(loss, sum(each / parts for each in sums))
    assert (
        sorted(name for name in arithmetic.seen if name in ("div", "add", "add_", "zeros"))
        == expected
    )
