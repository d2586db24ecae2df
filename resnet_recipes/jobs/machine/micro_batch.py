"""Find the largest `batch.bn_size` that fits on this machine, for `auto`."""

from dataclasses import replace

from resnet_recipes import cuda
from resnet_recipes.base import atomic
from resnet_recipes.base.errors import ExitCode, RecipeError
from resnet_recipes.base.text import Say
from resnet_recipes.jobs.ranks.group import Group
from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.jobs.task import Task
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.sections import AUTO

RESULT = "bn_size"  # file with the largest number of images, in the folder of the task


def fit_micro_batch(plan: Plan, say: Say) -> Plan:
    """Return the plan with the largest micro-batch that fits, in place of auto.

    Takes some seconds on the first GPU; `say` is called with the result and its effects. Raises
    RecipeError without a GPU, NotDoneError if nothing fits or the rank fails or is stopped.
    """
    if plan.recipe.batch.bn_size != AUTO:
        return plan
    if not cuda.find_gpus().count:
        clause = "needs a GPU, and this machine has no GPU"
        raise RecipeError.of("batch.bn_size", AUTO, clause, "batch.bn_size=64")
    size = _find_largest(plan, say)
    say(f"batch.bn_size={size} is the most that fits on {cuda.find_gpus().name or 'this GPU'}.")
    say(f"BatchNorm sees {size} images at a time: compare runs with the same number.")
    batch = replace(plan.recipe.batch, bn_size=size)
    return replace(plan, recipe=replace(plan.recipe, batch=batch))


def _find_largest(plan: Plan, say: Say) -> int:
    alone = replace(
        plan.recipe,
        batch=replace(plan.recipe.batch, global_size=plan.rank_size),
        data=replace(plan.recipe.data, backend="synthetic"),
    )
    facts = replace(plan.facts, backend="synthetic")
    task = Task(run_task, "no micro-batch was found that fits")
    with task.run(alone, facts, Group(), say) as folder:
        return int((folder / RESULT).read_text())


def run_task(process: RankProcess) -> int:
    """Find the largest micro-batch on this rank and write it to the task's folder."""
    import torch

    from resnet_recipes.jobs.ranks.prepare import prepare_rank
    from resnet_recipes.training import distributed, micro_batch

    if (rank_plan := prepare_rank(process)) is None:
        return process.interruption.exit_code
    rank, plan = rank_plan
    torch.cuda.set_per_process_memory_fraction(micro_batch.USABLE_MEMORY_FRACTION, rank.device)
    size = micro_batch.find_micro_batch(plan, rank)
    atomic.write_text(process.folder / RESULT, str(size))
    distributed.leave_group()
    return ExitCode.DONE
