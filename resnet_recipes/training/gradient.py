"""Compute the gradient of one step's batch: eagerly, compiled or as a CUDA graph."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from resnet_recipes.base.errors import Fix, Hint
from resnet_recipes.base.text import do_nothing
from resnet_recipes.data.base import normalize
from resnet_recipes.methods.base import Batch, Now
from resnet_recipes.training.memory import explain_lack_of_memory
from resnet_recipes.training.run import Run


class GradientComputer:
    """Computes the gradient of a batch."""

    def __init__(self, run: Run):
        self._run = run
        self._is_timed = run.rank.device.type == "cuda" or run.plan.recipe.precision.compile
        size, rank_size = run.plan.micro_batch_size, run.plan.rank_size
        smaller = next((n for n in range(size // 2, 0, -1) if rank_size % n == 0), 0)
        hint = Hint("a smaller micro-batch needs less memory and barely changes the result")
        self._memory_fix: Fix = Hint("use smaller images")
        if smaller:
            self._memory_fix = (f"batch.bn_size={smaller}", hint)

    def __call__(self, batch: Batch, sync: bool = True) -> Tensor:
        """Add a batch's gradient to `.grad`, averaged over ranks if `sync`."""
        if not self._is_timed:
            return self._compute(batch, sync)
        run, shape = self._run, batch.images.shape
        with self._explain_memory(shape[-1]), run.compilation.time_gradient(shape):
            return self._compute(batch, sync)

    def _explain_memory(self, image_size: int) -> AbstractContextManager[None]:
        images = f"a micro-batch of {self._run.plan.micro_batch_size} images of {image_size} px"
        return explain_lack_of_memory(images, self._memory_fix)

    def _compute(self, batch: Batch, sync: bool) -> Tensor:
        graphs = self._run.graphs
        if graphs is None:
            return self.compute_eagerly(batch, sync)
        return graphs.compute(self.compute_eagerly, batch, sync)

    def compute_eagerly(
        self, batch: Batch, sync: bool, halfway: Callable[[], object] = do_nothing
    ) -> Tensor:
        """Add a batch's gradient to `.grad` without a CUDA graph.

        Returns the losses, float32 [N]. Calls `halfway` between the forward and the backward pass
        of the last micro-batch; `GradientGraphs` then records how far the device is.
        """
        run, losses_of_parts = self._run, []
        parts = run.plan.micro_batches
        for i, part in enumerate(batch.split(parts)):
            # detached, since torch.compile compiles a graph for each kind of view
            images = part.images.detach()
            with run.precision.autocast():
                losses = run.methods.losses(run.model(images), part)
                loss = (losses if part.weights is None else losses * part.weights).mean()
                loss = loss / parts if parts > 1 else loss
            is_last = i == parts - 1
            if is_last:
                halfway()
            with run.all_reduce.average(sync and is_last):
                run.precision.backward(loss)
            losses_of_parts.append(losses.detach())
        return torch.cat(losses_of_parts)

    def check_memory(self) -> None:
        """Compute and discard a gradient at the largest image size.

        Raises TrainingError if memory runs out. Includes methods that change the batch, since a
        teacher needs memory. Excludes the second gradient of SAM and the optimizer, so training may
        still run out of memory.
        """
        run, plan, device = self._run, self._run.plan, self._run.rank.device
        image_size = max(plan.image_sizes)
        epoch = plan.image_sizes.index(image_size)  # the first epoch with this size
        now = Now.at(epoch * plan.steps_per_epoch, plan.total_steps, plan.steps_per_epoch)
        loader_size = plan.loader_sizes[epoch] if plan.loader_sizes else plan.recipe.data.train_size
        torch.backends.cudnn.benchmark = image_size in run.searched_sizes
        buffers = list(run.model.buffers())
        copies = [buffer.clone() for buffer in buffers]
        pixels = torch.zeros(
            plan.rank_size, 3, loader_size, loader_size, dtype=torch.uint8, device=device
        )
        labels = torch.zeros(plan.rank_size, dtype=torch.int64, device=device)
        with self._explain_memory(image_size):
            with torch.no_grad():
                images = normalize(pixels, plan.recipe.data.mean, plan.recipe.data.std)
                batch = Batch.of(images, labels, plan.num_classes)
                batch = run.methods.transform_batch(batch, now)
            self.compute_eagerly(batch, sync=False)
        run.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, value in zip(buffers, copies, strict=True):
                buffer.copy_(value)
