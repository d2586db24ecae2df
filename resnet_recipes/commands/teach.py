"""`resnet-recipes teach NAME data=PATH methods.distill.teacher=T`: store a teacher's outputs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.base.paths import folder_problem, typed_path
from resnet_recipes.base.text import printable
from resnet_recipes.commands.arguments import RECIPES, Arguments, Usage
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.printing import say

if TYPE_CHECKING:
    from resnet_recipes.jobs.teach import Storing
    from resnet_recipes.planning.plan import Plan

USAGE = Usage(
    "resnet-recipes teach NAME data=PATH methods.distill.teacher=T --out FILE.npy [key=value ...]",
    "store what a teacher says of every image of a run, for runs that learn from it without the "
    "teacher",
    "resnet-recipes teach small data=D methods.distill.teacher=last --out l.npy",
    RECIPES
    | {
        "--out FILE.npy": "the file to write; FILE.npy.json describes it",
        "--top K": "outputs to keep of each image, the largest (default 10); all: every one, exact",
        "--cycle N": "store N epochs, which runs of any length repeat in turn, at full size",
        "--dry-run": "only say what it takes",
    },
    """\
The crops of a run are functions of its seed, the epoch and the image, so each output belongs to
one crop. Train with the same settings and methods.distill.labels=FILE. To resume, type the same
command again.""",
    composes=True,
)


def run(arguments: Arguments) -> int:
    """Say what it takes, and write the file unless --dry-run."""
    from resnet_recipes.jobs.budget import plan_here
    from resnet_recipes.jobs.teach import teach
    from resnet_recipes.planning.stored import unstorable

    storing, path = _storing(arguments)
    _, plan = plan_here(composed(arguments), say)
    problems = list(unstorable(plan))
    if not [teacher for teacher in plan.teachers if teacher.network]:
        rule = "none of them learns from a teacher, whose outputs would be stored"
        problems.append(Problem("methods", None, rule, USAGE.example))
    if problems:
        raise RecipeError(problems)
    writer = storing.writer(plan)
    need = f"the teacher's outputs need {writer.bytes / 1e9:,.2f} GB"
    say(_forecast(plan, storing, writer.bytes))
    if os.path.lexists(path):
        rule = "already exists: delete it, or give another name"
        raise NotReadyError.of("--out", str(path), rule, f"--out {path.with_stem(path.stem + '2')}")
    if problem := folder_problem("--out", path.parent, writer.bytes - writer.written, need):
        raise NotReadyError([problem])
    if "--dry-run" not in arguments:
        ending = teach(plan, storing, say)
        if ending.code:
            return ending.code
        print(printable(path))
    return 0


def _storing(arguments: Arguments) -> tuple["Storing", Path]:
    """Return what was asked for. Raises RecipeError with every problem."""
    from resnet_recipes.jobs.teach import Storing

    flags, problems = arguments.flags, []
    numbers = {"--top": flags.get("--top", "10"), "--cycle": flags.get("--cycle", "0")}
    is_exact = numbers["--top"] == "all"
    if is_exact:
        numbers["--top"] = str(1 << 30)
    for flag, text in numbers.items():
        if flag in arguments and not (text.isdecimal() and 0 < int(text) <= 1 << 30):
            problems.append(Problem(flag, text, "must be a number from 1 on", f"{flag} 10"))
    if "--out" not in arguments:
        problems.append(Problem("--out", None, "is missing: the file to write", "--out labels.npy"))
    if problems:
        raise RecipeError(problems)
    path = typed_path("--out", flags["--out"]).absolute()
    kept, cycle = (int(text) for text in numbers.values())
    return Storing(str(path), kept, cycle, is_exact), path


def _forecast(plan: "Plan", storing: "Storing", size: int) -> str:
    from resnet_recipes.estimating.network import teaching

    epochs = storing.writer(plan).epochs
    images = plan.facts.train_examples * plan.recipe.data.repeats
    sides = [plan.recipe.data.train_size] * epochs if storing.cycle else plan.sizes
    pflops = sum(images * teaching(plan.teachers, side) for side in sides) / 1e15
    kept = min(storing.kept, plan.num_classes)
    return (
        f"{plan.teachers[0].text}: {kept} outputs for each of {images:,} images in {epochs} "
        f"epochs, {size / 1e9:,.2f} GB and {pflops:,.3g} PFLOPs, once for all runs"
    )
