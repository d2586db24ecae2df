"""What a teacher says of the images of a run, each seen on its own."""

from collections.abc import Callable

import torch

from resnet_recipes.data.stored import Outputs, kept
from resnet_recipes.data.stream import Stream
from resnet_recipes.methods.base import TAUGHT_AT_ONCE, Batch, Now
from resnet_recipes.methods.stack import Stack
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.teachers import teachers
from resnet_recipes.training.build import frozen, open_train
from resnet_recipes.training.distributed import Rank, first_ranks, meet
from resnet_recipes.training.precision import Precision, resolve_dtype


@torch.no_grad()
def store(
    plan: Plan,
    rank: Rank,
    outputs: Outputs,
    progress: Callable[[int, int], None],
    stopped: Callable[[], bool],
) -> bool:
    """Write what a teacher says of a rank's images in all epochs that are not whole.

    Return whether they are now; they are not if any rank is `stopped`.
    """
    missing, shape = outputs.missing(), outputs.values.shape
    meet()  # no rank writes before all have read
    ((_, network),) = teachers(plan)
    dtype = resolve_dtype(plan.recipe.precision.dtype, rank.device)
    logits = frozen(network, Precision(rank.device, dtype, network.model), plan.recipe.data)
    stack = plan.new_stack()
    sizes = Stack({one.name: one for one in stack if one.changes == "sizes"})
    loader = open_train(plan, rank, stack)
    for epoch in missing:
        now = Now.at(epoch * plan.steps_per_epoch, plan.total_steps, plan.steps_per_epoch)
        jobs = loader.whole(epoch)
        stream = zip(jobs, Stream(loader.source.run(jobs), rank.device), strict=True)
        for done, (job, raw) in enumerate(stream, epoch * len(jobs)):
            if stopped():
                break
            batch = Batch.of(loader.normalized(raw), raw.labels, plan.num_classes)
            images = sizes.transform_batch(batch, now).images
            said = torch.cat([logits(part) for part in images.split(TAUGHT_AT_ONCE)])
            for tensor, found in zip(outputs, kept(said, shape[3]), strict=False):
                tensor[epoch, job.copies, job.indices] = found.numpy(force=True)
            progress(done + 1, shape[0] * len(jobs))
        if first_ranks(torch.tensor([stopped()], device=rank.device))[0] >= 0:
            return False
        if rank.is_main:
            outputs.sha256[epoch] = outputs.digest(epoch)
    meet()  # a rank that ends says that all is written
    loader.close()
    return True
