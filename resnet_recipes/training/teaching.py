"""What a teacher says of the images of a run, each seen on its own."""

from collections.abc import Iterator

import numpy as np
import torch

from resnet_recipes.data.loading.stored import kept_rows
from resnet_recipes.data.normalize import normalize
from resnet_recipes.data.order import Job
from resnet_recipes.data.stream import Stream
from resnet_recipes.methods.base import TAUGHT_AT_ONCE, Batch, Now
from resnet_recipes.network.teacher import teachers
from resnet_recipes.planning.plan import Plan
from resnet_recipes.training.build import frozen, open_train
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.precision import Precision, resolve_dtype


class Teaching:
    """A teacher and the training images of one rank, at the sizes of each epoch."""

    def __init__(self, plan: Plan, rank: Rank, is_full_size: bool):
        recipe, stack = plan.recipe, plan.methods()
        ((_, network),) = teachers(plan)
        dtype = resolve_dtype(recipe.precision.dtype, rank.device)
        self._logits = frozen(network.model, Precision(rank.device, dtype, network.model))
        self._plan, self._device, self._is_full_size = plan, rank.device, is_full_size
        self._resizes = [
            method.transform_batch
            for method in stack
            if method.changes == "sizes" and method.provides("transform_batch")
        ]
        self._images = open_train(plan, rank, stack)

    @torch.no_grad()
    def rows(self, epoch: int, kind: np.dtype) -> Iterator[tuple[Job, np.ndarray]]:
        """Yield blocks of images of an epoch, and the teacher's outputs as rows of a file."""
        plan = self._plan
        loaded = plan.recipe.data.train_size
        if plan.loader_pixels and not self._is_full_size:
            loaded = plan.loader_pixels[epoch]
        now = Now(
            epoch * plan.steps_per_epoch, plan.horizon, np.random.default_rng(plan.recipe.seed)
        )
        jobs = self._images.whole(epoch, loaded)
        stream = Stream(self._images.run(jobs), self._device)
        for job, raw in zip(jobs, stream, strict=True):
            batch = Batch.of(normalize(raw.pixels), raw.labels, plan.num_classes)
            for resize in () if self._is_full_size else self._resizes:
                batch = resize(batch, now)
            parts = [self._logits(images) for images in batch.images.split(TAUGHT_AT_ONCE)]
            yield job, kept_rows(torch.cat(parts), kind)

    def close(self) -> None:
        """Stop the loader."""
        self._images.close()
