"""Run a teacher on every image of every epoch of a run, and store its outputs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base.errors import ExitCode, NotReadyError, RecipeError
from resnet_recipes.base.limits import find_number_problem
from resnet_recipes.base.paths import find_folder_problem, new_path, typed_path
from resnet_recipes.base.text import Say, byte_size, counted
from resnet_recipes.data.stored import make_header, map_outputs, open_for_writing
from resnet_recipes.jobs.budget import plan_here
from resnet_recipes.jobs.group import make_group
from resnet_recipes.jobs.rank import RankProcess, read_job, show_progress
from resnet_recipes.jobs.task import Task
from resnet_recipes.planning.network_facts import count_teaching
from resnet_recipes.planning.teachers import describe_file, find_unstorable, make_cycle
from resnet_recipes.training import distributed

if TYPE_CHECKING:  # ranks never import Hydra
    from resnet_recipes.recipe.compose import Composed


def teach(
    composed: "Composed",
    top: str,
    cycle: str,
    out: str,
    say: Say,
    is_dry: bool = False,
) -> Path:
    """Store the outputs of a recipe's teacher on all devices of this machine; return the file.

    `say` is called with the cost. `top`, `cycle` and `out` are command-line arguments. Raises
    RecipeError and NotReadyError if it cannot start, NotDoneError if it was stopped or failed.
    """
    path = new_path("--out", str(typed_path("--out", out).with_suffix(".safetensors").absolute()))
    outputs = "1" if top == "all" else top
    problem = find_number_problem("--top", outputs, 1, fix=("--top 10", "--top all"))
    RecipeError.refuse([problem, find_number_problem("--cycle", cycle, 0, fix="--cycle 10")])
    plan = plan_here(composed, say)
    RecipeError.refuse(find_unstorable(plan))
    if not any(teacher.network for teacher in plan.teachers):
        rule = "none of them has a teacher, so there is nothing to store"
        raise RecipeError.of("methods", None, rule, "resnet-recipes teach --help")
    teacher, sizes = plan.teachers[0].text, make_cycle(plan, int(cycle)).sizes
    copies, images, classes = plan.recipe.data.repeats, plan.facts.train_examples, plan.num_classes
    stored_outputs = classes if top == "all" else min(int(top), classes)
    device = distributed.read_rank(plan.recipe.launch.device).device.type
    description = describe_file(plan, int(cycle), device)
    first, size = make_header(description, (len(sizes), copies, images, stored_outputs), classes)
    part = path.with_name(f"{path.name}.part")
    need = f"the teacher's outputs need {byte_size(size)}"
    missing = 0 if os.path.exists(part) else size
    NotReadyError.refuse([find_folder_problem("--out", path.parent, missing, need)])
    operations = images * copies * sum(count_teaching(plan.teachers, side) for side in sizes)
    say(
        f"{teacher}: {stored_outputs} outputs for each of {copies * images:,} images in "
        f"{counted(len(sizes), 'epoch')}, {byte_size(size)} and "
        f"{operations / 1e15:,.3g} PFLOPs, once for all runs"
    )
    if is_dry:
        return path
    values = {"part": str(part), "cycle": int(cycle)}
    failure = "the teacher's outputs are incomplete: the same command continues"
    ranks = Task("teach", failure, values).run(
        plan.recipe, plan.facts, make_group(plan.recipe.launch), say
    )
    with open_for_writing(part, first, size) as file, ranks:
        os.fsync(file)
        part.rename(path)
    return path


def work(process: RankProcess) -> int:
    """Store a rank's part of the outputs."""
    # these import torchvision, which takes seconds
    from resnet_recipes.jobs.prepare import prepare_rank
    from resnet_recipes.training.teaching import write_outputs

    if (rank_plan := prepare_rank(process)) is None:
        return process.interruption.exit_code
    (rank, plan), job, interruption = rank_plan, read_job(process.folder), process.interruption
    distributed.join(rank)
    outputs, about = map_outputs(Path(job["part"]), "r+")
    if about != describe_file(plan, job["cycle"], rank.device.type):
        rule = "was replaced after it was checked"
        raise NotReadyError.at(plan.teachers[0].key, rule, "run the same command again")
    with show_progress(process, "storing the outputs of the teacher", "batches") as progress:
        plan = make_cycle(plan, job["cycle"])
        if not write_outputs(plan, rank, outputs, progress, lambda: interruption.requested):
            return interruption.exit_code
    distributed.leave()
    return ExitCode.DONE
