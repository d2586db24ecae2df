"""Run a teacher over every image of every epoch of a run, and store what it says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.errors import ExitCode, NotReadyError, Problem, RecipeError
from resnet_recipes.base.paths import folder_problem, new_path, typed_path
from resnet_recipes.data.loading.stored import Writer
from resnet_recipes.estimating.network import teaching
from resnet_recipes.jobs.group import group_of
from resnet_recipes.jobs.launcher import started
from resnet_recipes.jobs.rank import RankProcess, job_of, shown
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.stored import made_for, shape_of, unstorable
from resnet_recipes.recipe.frozen import sealed
from resnet_recipes.run_folder.ending import Ending
from resnet_recipes.run_folder.names import CONFIG, DATA


class Storing(NamedTuple):
    """What to store of a teacher's outputs, and where."""

    out: str
    kept: int = 10  # outputs of each image, the largest, in float16; 0: all, in float32
    cycle: int = 0  # epochs that a run repeats in turn; 0: all epochs of the run

    def writer(self, plan: Plan) -> Writer:
        """Return the writer of the file."""
        made = made_for(plan, self.cycle)
        about = {
            "teacher": plan.teachers[0].text,
            "classes": plan.num_classes,
            "kept": min(self.kept or plan.num_classes, plan.num_classes),
            "exact": not self.kept,
            "shape": shape_of(plan, made),
            "made": made,
        }
        return Writer(Path(self.out), about)


def wanted(out: str, top: str, cycle: str) -> Storing:
    """Return what was asked for, as words of the command. Raises RecipeError."""
    rule, path = "must be a number from 1 to 9999", typed_path("--out", out)
    problems = [
        Problem(flag, text, rule, f"{flag} 10")
        for flag, text, also in (("--top", top, "all"), ("--cycle", cycle, ""))
        if not re.fullmatch(f"[1-9][0-9]{{0,3}}|{also}", text)
    ]
    if problems:
        raise RecipeError(problems)
    kept = 0 if top == "all" else int(top)
    return Storing(str(path.with_suffix(".safetensors").absolute()), kept, int(cycle or 0))


def check(plan: Plan, storing: Storing) -> str:
    """Return what storing takes, for the user. Raises RecipeError or NotReadyError if it cannot."""
    problems = [*unstorable(plan)]
    if not [teacher for teacher in plan.teachers if teacher.network]:
        rule = "none of them learns from a teacher, whose outputs would be stored"
        problems.append(Problem("methods", None, rule, "resnet-recipes teach --help"))
    if problems:
        raise RecipeError(problems)
    writer, path = storing.writer(plan), new_path("--out", storing.out)
    need = f"the teacher's outputs need {writer.bytes / 1e9:,.2f} GB"
    if problem := folder_problem("--out", path.parent, writer.bytes - writer.written, need):
        raise NotReadyError([problem])
    data, epochs = plan.recipe.data, writer.epochs
    images = plan.facts.train_examples * data.repeats
    sides = [data.train_size] * epochs if storing.cycle else plan.sizes
    pflops = sum(images * teaching(plan.teachers, side) for side in sides) / 1e15
    return (
        f"{plan.teachers[0].text}: {writer.kept} outputs for each of {images:,} images in {epochs} "
        f"epochs, {writer.bytes / 1e9:,.2f} GB and {pflops:,.3g} PFLOPs, once for all runs"
    )


def teach(plan: Plan, storing: Storing, say: Callable[[str], None]) -> Ending:
    """Let all devices of this machine write the file; return how they ended."""
    files = {CONFIG: sealed(plan.recipe), DATA: plan.facts.to_json()}
    group = group_of(plan.recipe.launch)
    ranks = started("teach", files, group, say, storing=list(storing))
    with storing.writer(plan).alone(), ranks as (_, ending):
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
