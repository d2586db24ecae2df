"""Check that a command continues a run without turning it into a different run."""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from resnet_recipes import data
from resnet_recipes.base import atomic
from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import (
    STOPPED_CODES,
    Command,
    Fix,
    Hint,
    Kind,
    NotReadyError,
    Problem,
    RecipeError,
    Statement,
    TrainingError,
    list_advice,
)
from resnet_recipes.base.paths import is_fetched
from resnet_recipes.base.reading import make_read_error, read_json
from resnet_recipes.base.text import Say
from resnet_recipes.data.base import DataFacts
from resnet_recipes.data.root import find_root_problem
from resnet_recipes.data.tensors import read_tensors
from resnet_recipes.jobs.lookup import LIST
from resnet_recipes.jobs.ranks import external_launcher
from resnet_recipes.jobs.ranks.group import count_ranks, find_group_problems
from resnet_recipes.planning.disk import find_space_problem
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe import frozen_recipe
from resnet_recipes.recipe.compose import ComposedRecipe, compose
from resnet_recipes.recipe.library import Entry, Origin
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.sections import AUTO
from resnet_recipes.report import trackers
from resnet_recipes.run_folder import (
    CHECKPOINTS,
    CONFIG,
    DATA,
    EXIT,
    METRICS,
    STOP,
    SUMMARY,
    TASK,
    WEIGHTS,
)
from resnet_recipes.run_folder.ending import format_resume, read_ending, suggest_restart
from resnet_recipes.run_folder.lock import LockedFolder, is_running, reject_links
from resnet_recipes.run_folder.metrics import filter_kind, read_metrics
from resnet_recipes.run_folder.runs import can_resume, iterate_newest_runs, list_checkpoints
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.state import find_setting_problems

#: Changed settings of a run to continue: arguments, or a complete recipe that must be equal.
RunChanges = Sequence[str] | ComposedRecipe


def find_match(composed: ComposedRecipe, say: Say) -> Path | None:
    """Return the folder of the run to continue with a recipe.

    If the recipe names its run, this is the run of that name; otherwise, it is the newest
    unfinished run with the same settings. None without such a run. Raises RecipeError if the named
    run has different settings.
    """
    run = composed.recipe.run
    root = Path(run.root)
    if run.name != "auto":
        folder = root / run.name
        if not (folder / CONFIG).is_file():
            return None
        problems = _find_change_problems(folder, composed)
        resume = (format_resume(folder),) if can_resume(folder) else ()
        for problem in problems:
            if problem.key == "name":  # another recipe differs in many settings
                clause = f"is a run of another recipe, {frozen_recipe.read(folder / CONFIG).name}"
                raise RecipeError.of("run.name", folder.name, clause, (*resume, "run=another"))
        RecipeError.raise_if_any(
            problem._replace(fix=(*resume, "run=another")) for problem in problems
        )
        return folder
    difference = ""
    for folder in iterate_unfinished_runs(root):
        if not (problems := _find_change_problems(folder, composed)):
            return folder
        keys = ", ".join(problem.key for problem in problems[:3])
        difference = difference or f" (the newest, {folder.name}, differs in {keys})"
    say(f"no unfinished run in {root} has these settings{difference}: starting a new one")
    return None


def continue_run(folder: Path, changes: RunChanges, say: Say) -> LockedFolder | None:
    """Prepare a run folder to continue with changed settings; return it.

    None if the run is finished. Raises the same errors as `check_resume`.
    """
    plan = check_resume(folder, changes, say)
    if plan is None:
        return None
    folder = folder.absolute()  # as in a new run
    locked_folder = LockedFolder(folder)
    config = folder / CONFIG
    original = frozen_recipe.read(config)
    # another command may have changed the run since it was checked
    RecipeError.raise_if_any(find_setting_problems(asdict(original), plan.recipe))
    if plan.recipe != original:
        atomic.write_text(config, frozen_recipe.freeze(plan.recipe))
    for outdated in (EXIT, STOP):
        (folder / outdated).unlink(missing_ok=True)
    say(f"resuming {folder}")
    return locked_folder


def check_resume(folder: Path, changes: RunChanges, say: Say) -> Plan | None:
    """Return the plan of a run that continues with changed settings; None if it is finished.

    Rejects everything that the ranks would reject, before anything is written. Raises RecipeError
    if a change would make it a different run, does not fit it, or comes after its end. Raises
    NotReadyError if the run is still running, if images have changed, or if images, devices, disk
    space or packages are missing.
    """
    recipe = _make_recipe(folder, changes)
    if (folder / SUMMARY).exists():
        RecipeError.raise_if_any(_find_finish_problems(folder, changes))
        _check_results(folder)
        say(f"{folder} is finished; its results are in {folder / SUMMARY}")
        return None
    if is_running(folder):
        with LockedFolder(folder):  # raises an error, unless the run ends at this moment
            pass
    if not isinstance(changes, ComposedRecipe):  # a complete recipe comes from the user
        data.require_trusted_url(recipe.data, changes, format_resume(folder))
    NotReadyError.raise_if_any(_find_resource_problems(recipe, folder))
    ranks = external_launcher.count_started_ranks() or count_ranks(recipe.launch)
    origin = Origin(Entry(recipe.name, folder / CONFIG, "run"))
    plan = make_plan(recipe, _measure_images(recipe, folder, say), ranks, origin)
    NotReadyError.raise_if_any([find_space_problem(folder / CHECKPOINTS, plan.disk.total_bytes)])
    _check_checkpoints(folder)
    return plan


def _check_checkpoints(folder: Path) -> None:
    """Raise NotReadyError if the checkpoints of a run are gone or damaged.

    The first checkpoint is on disk when a second one is saved, or when a stopped run has ended. A
    run that was killed earlier may have no checkpoint and then starts from zero.
    """
    restart = suggest_restart(folder)
    try:
        if Checkpoints(folder / CHECKPOINTS, note=lambda _: None).load_newest():
            return
    except TrainingError as error:
        clause = f"cannot be resumed: {error.statement}"
        raise NotReadyError.at(
            folder, clause, (*list_advice(error.fix), *list_advice(restart))
        ) from None
    records = read_metrics(folder / METRICS)
    saved = {record["step"] for record in filter_kind(records, "saved")}
    ending = read_ending(folder / EXIT)
    if len(saved) > 1 or (saved and ending and ending.code in STOPPED_CODES):
        clause = f"has no checkpoints, but the run had reached epoch {records[-1]['epoch']:.2f}"
        raise NotReadyError.at(folder, clause, restart)


def _check_results(folder: Path) -> None:
    """Raise NotReadyError if the results of a finished run cannot be read."""
    path = folder / SUMMARY
    try:
        read_json(path)
        path = folder / WEIGHTS
        if path.exists():
            read_tensors(path)
    except NotReadyError as error:
        damage = error.problems[0]
    except (OSError, ValueError) as error:
        damage = make_read_error(path, error).problems[0]
    else:
        return
    command = Command(f"rm {shlex.quote(str(folder / SUMMARY))} && {format_resume(folder)}")
    raise NotReadyError([damage._replace(fix=command if list_checkpoints(folder) else "")])


def _make_recipe(folder: Path, changes: RunChanges) -> Recipe:
    """Return the recipe of a continued run: its own, with changed settings.

    Raises NotReadyError if it is not a run, and RecipeError if a change makes it another run.
    """
    config = folder / CONFIG
    if not config.is_file():
        clause = "is a file" if folder.is_file() else "has no config.yaml"
        # weights or a checkpoint of a run
        runs = (path for path in folder.parents[:2] if (path / CONFIG).is_file())
        fix = f"--resume {shlex.quote(str(run))}" if (run := next(runs, None)) else LIST
        raise NotReadyError.of("--resume", str(folder), f"is not a run folder: it {clause}", fix)
    if os.path.lexists(folder / TASK):
        clause = f"is the folder of a measurement or a check ({TASK}), which cannot be resumed"
        raise NotReadyError.of("--resume", str(folder), clause, Hint("start a new run"))
    reject_links(folder)
    original = frozen_recipe.read(config)
    recipe = original
    settings: Sequence[str] = ()
    wrong: Sequence[Problem] = ()
    problems = list[Problem]()
    if isinstance(changes, ComposedRecipe):
        recipe = _copy_resolved(changes, original)
        if recipe.batch.bn_size == AUTO:  # the number was found when the run started
            recipe = replace(recipe, batch=replace(recipe.batch, bn_size=original.batch.bn_size))
    elif changes:
        recipe, settings, wrong = _apply_changes(folder, changes)
    recipe = replace(recipe, run=original.run)
    advice: Fix = Command.of("resnet-train", str(config), *settings)
    if can_resume(folder):
        advice = (format_resume(folder), Hint(f"or start a new run: {advice}"))
    elif (folder / SUMMARY).exists():
        has_weights = any(argument.startswith("model.weights=") for argument in settings)
        weights = () if has_weights else (f"model.weights={folder}",)
        advice = Command.of("resnet-train", str(config), *weights, *settings)
    changed = find_setting_problems(asdict(original), recipe)
    for problem in wrong:  # the suggestion may also be a setting that a run keeps
        others = [_apply_changes(folder, [change])[0] for change in problem.changes]
        keeps = any(any(find_setting_problems(asdict(original), other)) for other in others)
        problems.append(problem._replace(fix=advice) if keeps else problem)
    problems += [problem._replace(fix=advice) for problem in changed]
    if recipe.launch.budget:
        clause = "needs a new run: this run keeps its duration"
        problems.append(Problem("budget", recipe.launch.budget, clause, kind=Kind.UNUSED))
    if recipe.batch.bn_size == AUTO:
        clause = f"is found when a run starts; this run uses {original.batch.bn_size}"
        problems.append(Problem("batch.bn_size", AUTO, clause, Hint("use a smaller number")))
    if problems and not (folder / SUMMARY).exists():
        problems += _find_resource_problems(recipe, folder)
        errors = ErrorCollector()
        with errors:
            _check_checkpoints(folder)
        problems += errors.problems
    RecipeError.raise_if_any(problems)
    return recipe


def _find_resource_problems(recipe: Recipe, folder: Path) -> Iterator[Problem]:
    """Yield the trackers, images and devices that a resumed run lacks."""
    yield from trackers.find_tracker_problems(recipe.log.to)
    if problem := _find_missing_data_problem(recipe, folder):
        yield problem
    if not external_launcher.count_started_ranks():
        yield from find_group_problems(recipe.launch)


def _find_finish_problems(folder: Path, changes: RunChanges) -> Iterator[Problem]:
    """Yield a problem for each argument that would change a finished run.

    A complete recipe changes nothing: a command with --resume auto may be repeated.
    """
    original = frozen_recipe.read(folder / CONFIG)
    for argument in () if isinstance(changes, ComposedRecipe) else changes:
        if _make_recipe(folder, [argument]) != original:
            yield Problem(argument, None, f"has no effect: {folder} is finished", kind=Kind.UNUSED)


def _copy_resolved(composed: ComposedRecipe, original: Recipe) -> Recipe:
    """Return a recipe with the values that `original` has for data.memory_pixels and a budget."""
    recipe = composed.recipe
    if recipe.data.memory_pixels == AUTO:
        memory_pixels = original.data.memory_pixels
        recipe = replace(recipe, data=replace(recipe.data, memory_pixels=memory_pixels))
    if not recipe.launch.budget:
        return recipe
    evaluation = recipe.evaluation
    if "evaluation.interval" not in composed.origin.settings:
        evaluation = replace(evaluation, interval=original.evaluation.interval)
    return replace(
        recipe,
        max_duration=original.max_duration,
        scale_schedule_ratio=original.scale_schedule_ratio,
        evaluation=evaluation,
        launch=replace(recipe.launch, budget=""),
    )


def _measure_images(recipe: Recipe, folder: Path, say: Say) -> DataFacts:
    """Return the facts about the run's images. Raises NotReadyError if the images have changed."""
    known_facts = DataFacts.read(folder / DATA, recipe.data.root, suggest_restart(folder))
    facts = data.survey_images(replace(recipe.data, backend=known_facts.backend), on_progress=say)
    if differing := facts.describe_differences(known_facts):
        clause = f"has changed since the run started: {differing} differ in name or size"
        fix: Fix = Hint("put the files back, or start a new run")
        root = frozen_recipe.read(folder / CONFIG).data.root
        if root != recipe.data.root:
            clause = f"contains other images than the run's data={root}: {differing} differ"
            if is_fetched(root) or find_root_problem(root) is None:
                fix = format_resume(folder)
        raise NotReadyError.of("data.root", recipe.data.root, clause, fix)
    return facts


def _apply_changes(
    folder: Path, changes: Sequence[str]
) -> tuple[Recipe, Sequence[str], Sequence[Problem]]:
    """Return a run's recipe with the valid changes, the valid changes, and the other problems.

    Raises RecipeError if each of the changes is valid, but not all of them together.
    """
    config = str(folder / CONFIG)

    def is_valid(change: str) -> bool:
        try:
            return bool(compose(config, [change]))
        except RecipeError:
            return False

    try:
        return compose(config, changes).recipe, changes, ()
    except RecipeError as error:
        valid = [*filter(is_valid, changes)]
        return compose(config, valid).recipe, valid, error.problems


def _find_missing_data_problem(recipe: Recipe, folder: Path) -> Problem | None:
    """Return a problem if a resumed run's images do not exist on this machine."""
    if recipe.data.backend == "synthetic" or is_fetched(recipe.data.root):
        return None
    problem = find_root_problem(recipe.data.root)
    if problem is None:
        return None
    command = format_resume(folder, " data=PATH")
    return problem._replace(fix=(*problem.advice, Hint(f"if the images were moved: {command}")))


def iterate_unfinished_runs(root: Path) -> Iterator[Path]:
    """Yield the run folders without a summary, newest first."""
    return (folder for folder in iterate_newest_runs(root) if not (folder / SUMMARY).exists())


def _find_change_problems(folder: Path, composed: ComposedRecipe) -> list[Problem]:
    try:
        original = frozen_recipe.read(folder / CONFIG)
    except RecipeError as error:
        return list(error.problems)
    recipe = composed.recipe
    problems = list(find_setting_problems(asdict(original), _copy_resolved(composed, original)))
    if recipe.run.name == "auto" and original.data.root != recipe.data.root:
        clause = Statement(f"the run started with {original.data.root}")
        problems.append(Problem("data.root", recipe.data.root, clause))
    return problems
