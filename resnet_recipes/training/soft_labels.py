"""Compute a teacher's outputs for every image of a run."""

from collections.abc import Callable
from contextlib import closing

import torch

from resnet_recipes.data.soft_labels import SoftLabelArrays, choose_outputs
from resnet_recipes.data.stream import Stream
from resnet_recipes.methods.base import TEACHER_BATCH_SIZE, Batch, Now
from resnet_recipes.methods.stack import Stack
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.teachers import open_teachers
from resnet_recipes.training.build import build_teacher, open_rank_images
from resnet_recipes.training.distributed import Rank, find_first_ranks, wait_for_ranks
from resnet_recipes.training.precision import Precision, resolve_dtype


@torch.no_grad()
def write_soft_labels(
    plan: Plan,
    rank: Rank,
    arrays: SoftLabelArrays,
    progress: Callable[[int, int], None],
    is_stopped: Callable[[], bool],
) -> bool:
    """Write a teacher's outputs for a rank's images in all incomplete epochs.

    Returns whether all epochs are now complete; False if `is_stopped` on any rank. Raises
    NotReadyError if the teacher or the images differ from the plan.
    """
    missing = arrays.find_missing_epochs()
    shape = arrays.values.shape
    wait_for_ranks()  # no rank writes before all ranks have read
    ((_, network),) = open_teachers(plan.new_stack(), plan.teachers)
    dtype = resolve_dtype(plan.recipe.precision.dtype, rank.device)
    logits = build_teacher(network, Precision(rank.device, dtype, network.model), plan.recipe.data)
    stack = plan.new_stack()
    resizing = Stack({method.name: method for method in stack if method.changes == "sizes"})
    with closing(open_rank_images(plan, rank, stack)) as loader:
        for epoch in missing:
            now = Now.at(epoch * plan.steps_per_epoch, plan.total_steps, plan.steps_per_epoch)
            orders = loader.list_epoch(epoch)
            stream = zip(orders, Stream(loader.source.read(orders), rank.device), strict=True)
            for done, (order, raw) in enumerate(stream, epoch * len(orders)):
                if is_stopped():
                    break
                batch = Batch.of(loader.normalize(raw), raw.labels, plan.num_classes)
                images = resizing.transform_batch(batch, now).images
                values = torch.cat([logits(part) for part in images.split(TEACHER_BATCH_SIZE)])
                for array, rows in zip(arrays, choose_outputs(values, shape[3]), strict=False):
                    array[epoch, order.copies, order.indices] = rows.numpy(force=True)
                progress(done + 1, shape[0] * len(orders))
            if find_first_ranks(torch.tensor([is_stopped()], device=rank.device))[0] >= 0:
                return False
            if rank.is_main:
                arrays.sha256[epoch] = arrays.digest(epoch)
    wait_for_ranks()  # a rank may return only when all ranks have written
    return True
