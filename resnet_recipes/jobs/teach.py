"""Run a teacher on the images of a run, and store its outputs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import ExitCode, Hint, NotReadyError, RecipeError
from resnet_recipes.base.limits import find_number_problem
from resnet_recipes.base.paths import find_folder_problem, parse_new_path, parse_path
from resnet_recipes.base.reading import make_read_error
from resnet_recipes.base.text import Say, format_bytes, format_count
from resnet_recipes.data.soft_labels import (
    FileStart,
    make_header,
    map_soft_labels,
    open_for_writing,
)
from resnet_recipes.jobs.machine.local_plan import plan_unresolved, resolve_plan
from resnet_recipes.jobs.ranks.group import make_group
from resnet_recipes.jobs.ranks.rank import RankProcess, read_task, show_progress
from resnet_recipes.jobs.task import Task
from resnet_recipes.methods import ORDER
from resnet_recipes.planning.network_facts import count_teacher_flops
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.teachers import (
    add_teachers,
    describe_file,
    find_soft_label_problems,
    make_cycle,
    make_missing_teacher_problem,
)
from resnet_recipes.training import distributed

if TYPE_CHECKING:  # ranks never import Hydra
    from resnet_recipes.recipe.compose import ComposedRecipe


class SoftLabelsPlan(NamedTuple):
    """A file of soft labels that can be written: everything was checked."""

    plan: Plan
    path: Path
    start: FileStart
    cycle: int  # number of epochs with full-size crops; 0: the epochs and crops of the run

    @property
    def part(self) -> Path:
        """The file while it is incomplete."""
        return self.path.with_name(f"{self.path.name}.part")

    def write(self, say: Say) -> Path:
        """Store the outputs of the teacher on all devices of this machine; return the file.

        Raises NotDoneError if it was stopped or failed; the next call continues.
        """
        values = {"part": str(self.part), "cycle": self.cycle}
        failure = "the teacher's outputs are incomplete: the same command continues"
        recipe = self.plan.recipe
        group = make_group(self.plan.recipe.launch)
        ranks = Task(run_task, failure, values).run(recipe, self.plan.facts, group, say)
        with open_for_writing(self.part, *self.start) as file, ranks:
            os.fsync(file)
            self.part.rename(self.path)
        return self.path


def check_options(top: str, cycle: str, out: str) -> Path:
    """Return the path of the file to write. Raises RecipeError if an option is wrong."""
    errors = ErrorCollector()
    outputs = "1" if top == "all" else top
    with errors:
        problem = find_number_problem("--top", outputs, 1, fix=("--top 10", "--top all"))
        cycle_problem = find_number_problem("--cycle", cycle, 0, fix="--cycle 10")
        RecipeError.raise_if_any([problem, cycle_problem])
    with errors:
        suffixed = parse_path("--out", out).with_suffix(".safetensors")
        path = parse_new_path("--out", str(suffixed)).absolute()
    errors.raise_if_any()
    return path


def plan_soft_labels(
    composed: "ComposedRecipe", top: str, cycle: str, out: str, say: Say
) -> SoftLabelsPlan:
    """Plan the file of a teacher's outputs, and call `say` with its cost.

    `top`, `cycle` and `out` are command-line arguments. Raises RecipeError if one of them or the
    teacher is wrong, NotReadyError if the file cannot be written, and the errors of `plan_here`.
    """
    errors = ErrorCollector()
    with errors:
        path = check_options(top, cycle, out)
    with errors:
        plan = plan_unresolved(composed, reads_teachers=False)
        with errors:
            RecipeError.raise_if_any(find_soft_label_problems(plan))
        with errors:
            plan = _add_teacher(plan)
    errors.raise_if_any()
    plan = resolve_plan(plan, say)
    sizes = make_cycle(plan, int(cycle)).image_sizes
    classes = plan.num_classes
    images = plan.recipe.data.repeats * plan.facts.train_examples
    outputs_per_image = classes if top == "all" else min(int(top), classes)
    device = distributed.read_rank(plan.recipe.launch.device).device.type
    shape = len(sizes), plan.recipe.data.repeats, plan.facts.train_examples, outputs_per_image
    start = make_header(describe_file(plan, int(cycle), device), shape, classes)
    labels = SoftLabelsPlan(plan, path, start, int(cycle))
    size_text = format_bytes(start.size)
    need = f"the teacher's outputs need {size_text}"
    missing_bytes = start.size
    if os.path.exists(labels.part):
        missing_bytes = 0
    NotReadyError.raise_if_any([find_folder_problem("--out", path.parent, missing_bytes, need)])
    flops = images * sum(count_teacher_flops(plan.teachers, image_size) for image_size in sizes)
    say(
        f"{plan.teachers[0].text}: {outputs_per_image} outputs for each of {images:,} images in "
        f"{format_count(len(sizes), 'epoch')}, {size_text} and "
        f"{flops / 1e15:,.3g} PFLOPs, once for all runs"
    )
    return labels


def _add_teacher(plan: Plan) -> Plan:
    """Return a plan with its teacher. Raises RecipeError without a teacher, like `add_teachers`."""
    plan = add_teachers(plan)
    if not any(teacher.network for teacher in plan.teachers):
        teaching = (method for method in ORDER if method.network_setting)
        raise RecipeError(map(make_missing_teacher_problem, teaching))
    return plan


def run_task(process: RankProcess) -> int:
    """Store a rank's part of the outputs. Raises NotReadyError if the file was replaced."""
    from resnet_recipes.jobs.ranks.prepare import prepare_rank
    from resnet_recipes.training.soft_labels import write_soft_labels

    if (rank_plan := prepare_rank(process)) is None:
        return process.interruption.exit_code
    rank, plan = rank_plan
    task = read_task(process.folder)
    interruption = process.interruption
    distributed.join_group(rank)
    try:
        arrays, about = map_soft_labels(Path(task["part"]), "r+")
    except (OSError, ValueError) as error:
        raise make_read_error(Path(task["part"]), error) from None
    if about != describe_file(plan, task["cycle"], rank.device.type):
        clause = "was replaced after it was checked"
        raise NotReadyError.at(plan.teachers[0].key, clause, Hint("run the same command again"))
    with show_progress(process, "storing the outputs of the teacher", "batches") as progress:
        plan = make_cycle(plan, task["cycle"])
        if not write_soft_labels(plan, rank, arrays, progress, interruption.is_requested):
            return interruption.exit_code
    distributed.leave_group()
    return ExitCode.DONE
