"""What a teacher says of the images of a run, each seen on its own."""

from collections.abc import Iterator

import torch
from torch import Tensor

from resnet_recipes.data.base import normalize
from resnet_recipes.data.order import Job
from resnet_recipes.data.stored import kept
from resnet_recipes.data.stream import Stream
from resnet_recipes.methods.base import TAUGHT_AT_ONCE, Batch, Now
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.teacher import teachers
from resnet_recipes.planning.plan import Plan
from resnet_recipes.training.build import frozen, open_train
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.precision import Precision, resolve_dtype


class Teaching:
    """A teacher and the training images of one rank, at the sizes of each epoch."""

    def __init__(self, plan: Plan, rank: Rank):
        recipe, stack = plan.recipe, plan.methods()
        ((_, network),) = teachers(plan)
        dtype = resolve_dtype(recipe.precision.dtype, rank.device)
        self._logits = frozen(network.model, Precision(rank.device, dtype, network.model))
        self._plan, self._device = plan, rank.device
        self._sizes = Stack({one.name: one for one in stack if one.changes == "sizes"})
        self._images = open_train(plan, rank, stack)

    @torch.no_grad()
    def outputs(self, epoch: int, count: int) -> Iterator[tuple[Job, tuple[Tensor, Tensor]]]:
        """Yield blocks of images of an epoch, and the teacher's `count` largest outputs."""
        plan = self._plan
        now = Now.at(epoch * plan.steps_per_epoch, plan.total_steps, plan.steps_per_epoch)
        jobs = self._images.whole(epoch)
        stream = Stream(self._images.source.run(jobs), self._device)
        for job, raw in zip(jobs, stream, strict=True):
            batch = Batch.of(normalize(raw.pixels), raw.labels, plan.num_classes)
            batch = self._sizes.transform_batch(batch, now)
            parts = [self._logits(images) for images in batch.images.split(TAUGHT_AT_ONCE)]
            yield job, kept(torch.cat(parts), count)

    def close(self) -> None:
        """Stop the loader."""
        self._images.close()
