"""Run a teacher over every image of every epoch of a run, and store what it says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.errors import ExitCode, NotReadyError, Problem, RecipeError
from resnet_recipes.base.paths import folder_problem, new_path, typed_path
from resnet_recipes.base.text import byte_size
from resnet_recipes.data.stored import Description, Writer
from resnet_recipes.estimating.network import teaching
from resnet_recipes.jobs.errand import errand
from resnet_recipes.jobs.group import group_of
from resnet_recipes.jobs.rank import RankProcess, job_of, shown
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.stored import cycled, made_for, unstorable
from resnet_recipes.run_folder.ending import Ending


class Storing(NamedTuple):
    """What to store of a teacher's outputs, and where."""

    out: str
    kept: int = 10  # outputs of each image, the largest; 0: all
    cycle: int = 0  # epochs that runs repeat in turn; 0: all epochs of one run

    def planned(self, plan: Plan) -> tuple[Plan, Writer]:
        """Return the plan whose images the teacher sees, and the writer of the file."""
        plan = cycled(plan, self.cycle) if self.cycle else plan
        made, classes = made_for(plan), plan.num_classes
        kept = min(self.kept or classes, classes)
        shape = made["epochs"], plan.recipe.data.repeats, plan.facts.train_examples, kept
        about = Description(plan.teachers[0].text, bool(self.cycle), made)
        return plan, Writer(Path(self.out), about, shape, classes)


def wanted(out: str, top: str, cycle: str) -> Storing:
    """Return what was asked for, as words of the command. Raises RecipeError."""
    rule, path = "must be a number from 1 to 9999", typed_path("--out", out)
    problems = [
        Problem(flag, text, rule, f"{flag} 10")
        for flag, text, also in (("--top", top, "all"), ("--cycle", cycle, ""))
        if not re.fullmatch(f"[1-9][0-9]{{0,3}}|{also}", text)
    ]
    RecipeError.refuse(problems)
    kept = 0 if top == "all" else int(top)
    return Storing(str(path.with_suffix(".safetensors").absolute()), kept, int(cycle or 0))


def check(plan: Plan, storing: Storing) -> str:
    """Return what storing takes, for the user. Raises RecipeError or NotReadyError if it cannot."""
    problems = [*unstorable(plan)]
    if not [teacher for teacher in plan.teachers if teacher.network]:
        rule = "none of them learns from a teacher, whose outputs would be stored"
        problems.append(Problem("methods", None, rule, "resnet-recipes teach --help"))
    RecipeError.refuse(problems)
    (plan, writer), path = storing.planned(plan), new_path("--out", storing.out)
    size = byte_size(writer.bytes)
    need = f"the teacher's outputs need {size}"
    NotReadyError.refuse([folder_problem("--out", path.parent, writer.missing, need)])
    epochs, copies, images, kept = writer.shape
    operations = sum(teaching(plan.teachers, side) for side in plan.sizes)
    return (
        f"{plan.teachers[0].text}: {kept} outputs for each of {copies * images:,} images in "
        f"{epochs} epochs, {size} and {copies * images * operations / 1e15:,.3g} PFLOPs, once for "
        "all runs"
    )


def teach(plan: Plan, storing: Storing, say: Callable[[str], None]) -> Ending:
    """Let all devices of this machine write the file; return how they ended."""
    group, (_, writer) = group_of(plan.recipe.launch), storing.planned(plan)
    ranks = errand("teach", plan.recipe, plan.facts, group, say, storing=storing)
    with writer.begin(), ranks as (_, ending):
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
    rank, storing = made.rank, Storing(*job_of(process.folder)["storing"])
    plan, writer = storing.planned(taught(made.plan))
    distributed.join(rank)
    teaching = Teaching(plan, rank)
    with shown(process, "storing what the teacher says") as progress:
        for epoch in range(writer.whole, writer.shape[0]):
            for job, outputs in teaching.outputs(epoch, writer.shape[3]):
                if process.interruption.requested:
                    break
                place = epoch, int(job.copies[0]), int(job.indices[0])
                progress(*writer.write(*place, outputs))
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
