"""Run a teacher over every image of every epoch of a run, and store what it says."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.errors import ExitCode
from resnet_recipes.data.loading.stored import Writer
from resnet_recipes.jobs.group import group_of
from resnet_recipes.jobs.launcher import started
from resnet_recipes.jobs.rank import RankProcess, job_of, shown
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.stored import made_for, shape_of
from resnet_recipes.recipe.frozen import sealed
from resnet_recipes.run_folder.ending import Ending
from resnet_recipes.run_folder.names import CONFIG, DATA


class Storing(NamedTuple):
    """What to store of a teacher's outputs, and where."""

    out: str
    kept: int  # outputs of each image, the largest
    cycle: int = 0  # epochs that a run repeats in turn; 0: all epochs of the run
    exact: bool = False  # float32, not float16

    def writer(self, plan: Plan) -> Writer:
        """Return the writer of the file."""
        made, kept = made_for(plan, self.cycle), min(self.kept, plan.num_classes)
        about = {
            "teacher": plan.teachers[0].text,
            "classes": plan.num_classes,
            "kept": kept,
            "exact": self.exact,
            "shape": shape_of(plan, made),
            "made": made,
        }
        return Writer(Path(self.out), about)


def teach(plan: Plan, storing: Storing, say: Callable[[str], None]) -> Ending:
    """Let all devices of this machine write the file; return how they ended."""
    files = {CONFIG: sealed(plan.recipe), DATA: plan.facts.to_json()}
    group = group_of(plan.recipe.launch)
    teaching = started("teach", files, group, say, storing=list(storing))
    with storing.writer(plan).alone(), teaching as (_, ending):
        return ending


def work(process: RankProcess) -> int:
    """Store a rank's part of the outputs, as the job of a rank."""
    # these import torchvision, which takes seconds
    import torch

    from resnet_recipes.jobs.prepared import prepared
    from resnet_recipes.network.teacher import taught
    from resnet_recipes.training import distributed
    from resnet_recipes.training.teaching import Teaching

    if (made := prepared(process)) is None:
        return process.interruption.exit_code
    rank, plan = made.rank, taught(made.plan)
    storing = Storing(*job_of(process.folder)["storing"])
    writer = storing.writer(plan)
    distributed.join(rank)
    if rank.is_main:
        writer.begin()
    distributed.meet()
    teaching = Teaching(plan, rank, bool(storing.cycle))
    with shown(process, "storing what the teacher says") as progress:
        for epoch in range(writer.begin(), writer.epochs):
            for job, rows in teaching.rows(epoch, writer.kind):
                if process.interruption.requested:
                    break
                writer.write(epoch, int(job.copies[0]), int(job.indices[0]), rows)
                progress(*writer.images(epoch, int(job.copies[0]), int(job.indices[-1]) + 1))
            stop = torch.tensor([process.interruption.requested], device=rank.device)
            if distributed.first_ranks(stop)[0] >= 0:  # and all others stop with it
                return process.interruption.exit_code
            if rank.is_main:
                writer.finish(epoch)
    if rank.is_main:
        writer.publish()
    teaching.close()
    distributed.meet()
    distributed.leave()
    return ExitCode.DONE
