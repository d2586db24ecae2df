"""Train as a rank: from the frozen recipe of a run folder to its summary."""

import sys
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from resnet_recipes.base.errors import ExitCode, Hint, TrainingError
from resnet_recipes.base.field_types import flatten
from resnet_recipes.base.text import format_count
from resnet_recipes.jobs.machine.run_time import make_speed_key, store_speeds
from resnet_recipes.jobs.ranks.prepare import prepare_rank
from resnet_recipes.jobs.ranks.rank import RankProcess, Spans, read_task
from resnet_recipes.network import about, pretrained
from resnet_recipes.network.weights import write_weights
from resnet_recipes.planning.estimate import estimate
from resnet_recipes.planning.measurement_cache import read_measurement
from resnet_recipes.recipe.frozen_recipe import to_tree
from resnet_recipes.report import trackers
from resnet_recipes.report.console import open_console
from resnet_recipes.report.recorder import Evaluation, Recorder
from resnet_recipes.run_folder import BEST_WEIGHTS, CHECKPOINTS, RAW_WEIGHTS, STOP, WEIGHTS
from resnet_recipes.run_folder.ending import format_resume
from resnet_recipes.run_folder.facts import RunFacts
from resnet_recipes.run_folder.summary import WeightFiles
from resnet_recipes.training import distributed
from resnet_recipes.training.build import build
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.loop import StepReporter, train
from resnet_recipes.training.reporter import RunReporter
from resnet_recipes.training.run import Run, RunStatus
from resnet_recipes.training.state import compute_parameter_sum, list_resume_warnings, restore


def run_task(process: RankProcess) -> int:
    """Train this rank's part of the run in `process.folder`.

    Returns DONE, or the exit code of an interruption.
    """
    if (rank_plan := prepare_rank(process)) is None:
        return process.interruption.exit_code
    (rank, plan), recipe = rank_plan, rank_plan.plan.recipe
    if recipe.precision.compile and rank.is_main:
        process.console.write(
            "compiling the network before the first step, which can take minutes\n"
        )
    run = build(plan, rank)
    checkpoints = Checkpoints(
        process.folder / CHECKPOINTS, recipe.checkpoint.keep, plan.stable_steps, run.notes
    )
    first = resume(run, checkpoints)
    spans = read_task(process.folder).get("spans", [(first, plan.total_steps)])
    if rank.is_main:
        checkpoints.open_for_writing(run.plan.disk.total_bytes)
        facts = make_run_facts(run, process)
        console = open_console(facts, process.console)
        tree = to_tree(recipe)
        settings = flatten({key: tree[key] for key in tree if key not in ("about", "published")})
        sent_to = trackers.open_trackers(recipe.log.to, process.folder, settings)
        recorder = Recorder(facts, console, process.launch.started_at, sent_to, process.on_record)
        with closing(recorder):
            code = train_first_rank(run, process, checkpoints, recorder, spans)
    else:
        code = train_other_rank(run, process, spans)
    # a launcher may stop all ranks when one ends, so none may end before rank 0 has finished
    distributed.wait_for_ranks()
    # an error skips this: closing may wait for a stuck rank before this rank's ending is written
    run.close()
    distributed.leave_group()
    return code


def resume(run: Run, checkpoints: Checkpoints) -> int:
    """Resume from the newest intact checkpoint, or start; return the completed steps.

    Reads `model.weights` only when a run starts, not when it resumes. Starts the training clock at
    the end, since all of this is part of the startup. Raises TrainingError if the ranks see
    different checkpoints, and the errors of `restore`.
    """
    checkpoint = checkpoints.load_newest()
    first = 0
    if checkpoint is not None:
        first = restore(run, checkpoint.state)
        for warning in list_resume_warnings(run, checkpoint.state):
            run.notes(warning)
    if not distributed.is_same_on_all_ranks(torch.tensor(first, device=run.rank.device)):
        raise TrainingError(
            f"this rank sees a checkpoint of step {first:,} in {checkpoints.folder}, but another "
            "rank sees a different one",
            Hint("all nodes must see the same folder"),
        )
    model = run.plan.recipe.model
    if checkpoint is None and model.weights:
        pretrained.load(run.model, pretrained.find_weights(model, run.plan.facts.classes))
        if not distributed.is_same_on_all_ranks(compute_parameter_sum(run.model)):
            raise TrainingError(
                "the ranks started from different weights",
                Hint(f"model.weights={model.weights} must be the same file on all nodes"),
            )
    run.clock.restart(0.0 if checkpoint is None else checkpoint.state["seconds"])
    return first


def train_spans(run: Run, reporter: StepReporter, spans: Spans) -> tuple[int, bool]:
    """Train each part of a run; return the completed steps, and whether all parts are done."""
    for first, end in spans:
        done = train(run, reporter, first, end)
        if done < end:
            break
    return done, run.get_status(done, end) is RunStatus.FINISHED


def train_other_rank(run: Run, process: RankProcess, spans: Spans) -> int:
    """Train as any rank except 0; notes go to its log."""
    run.notes.listen(partial(print, file=sys.stderr, flush=True))
    reporter = RunReporter(run, None, None, process.interruption.is_requested, process.heartbeat)
    _, is_done = train_spans(run, reporter, spans)
    return ExitCode.DONE if is_done else process.interruption.exit_code


def train_first_rank(
    run: Run, process: RankProcess, checkpoints: Checkpoints, recorder: Recorder, spans: Spans
) -> int:
    """Train as rank 0, which writes the results and reports to the user.

    Raises TrainingError if the results cannot be written, and any error of the training.
    """
    first, _ = spans[0]
    is_task = bool(read_task(process.folder))
    recorder.begin(first, run.clock.seconds(), run.has_pending_evaluation)
    run.notes.listen(lambda text: recorder.log_note(max(first, process.heartbeat.step), text))
    for text in run.train_data.source.notes:
        run.notes(text)
    is_stop_requested = process.interruption.is_requested
    reporter = RunReporter(run, recorder, checkpoints, is_stop_requested, process.heartbeat)
    try:
        done, is_done = train_spans(run, reporter, spans)
        seconds = run.clock.seconds()  # excludes writing the last checkpoint and the weights
    except BaseException as error:
        try:
            checkpoints.wait()  # a checkpoint saved before a failure must reach the disk
        except TrainingError as unsaved:
            error.add_note(str(unsaved))
        raise
    checkpoints.wait(is_last=is_done and not is_task)
    if skipped := run.train_data.source.skipped:
        some = ", ".join(skipped[:5])
        count = format_count(len(skipped), "unreadable training image")
        recorder.log_note(done, f"replaced {count} on rank 0: {some}")
    if not is_done:
        with suppress(OSError):  # absent unless `resnet-recipes stop` sent the signal
            process.interruption.reason = (process.folder / STOP).read_text()
            (process.folder / STOP).unlink()
        reason = process.interruption.reason or "another rank was asked to stop"
        fix = "" if is_task else format_resume(process.folder)
        recorder.log_stop(done, reason, fix)
        return process.interruption.exit_code
    if is_task:
        return ExitCode.DONE
    try:
        files = write_weight_files(run, process.folder, recorder.last_evaluation, done)
        recorder.finish(done, seconds, files)
        store_speeds(run.plan, process.folder)
    except OSError as error:
        why = f"could not be written to {process.folder} ({error.strerror})"
        raise TrainingError(f"training is done, but its results {why}") from None
    return ExitCode.DONE


def write_weight_files(run: Run, folder: Path, last: Evaluation, done: int) -> WeightFiles:
    """Write the weights after `done` steps and their evaluation, each file with a description.

    If weights of the best evaluation were kept, `run.model` then contains them.
    """
    plan, best, (averaged, raw) = run.plan, run.best, last
    describe = partial(about.describe, plan.recipe, plan.facts.classes, plan.num_classes)
    epochs = done / plan.steps_per_epoch  # fewer than planned if the run reached its target
    with run.methods.eval_weights(run.model):
        final = write_weights(run.model, folder / WEIGHTS, describe(epochs, averaged or raw))
    files = WeightFiles(final)
    if "eval_weights" in plan.hooks:
        path = folder / RAW_WEIGHTS
        files = files._replace(raw=write_weights(run.model, path, describe(epochs, raw)))
    if best.metrics is not None:
        run.model.load_state_dict(best.weights)
        description = describe(best.step / plan.steps_per_epoch, best.metrics)
        description = replace(description, best_of=best.evaluations)
        files = files._replace(best=write_weights(run.model, folder / BEST_WEIGHTS, description))
    return files


def make_run_facts(run: Run, process: RankProcess) -> RunFacts:
    """Return the parts of a run's plan that the reports need."""
    plan = run.plan
    measurement = read_measurement(make_speed_key(plan))
    return RunFacts(
        recipe=plan.recipe.name,
        folder=process.folder,
        devices=run.rank.devices,
        total_steps=plan.total_steps,
        steps_per_epoch=plan.steps_per_epoch,
        global_size=plan.recipe.batch.global_size,
        flops=plan.flops,
        evaluations=plan.evaluations,
        evaluation_pflops=plan.evaluation_flops / 1e15,
        published=tuple(plan.published),
        estimated_seconds=60 * estimate(plan, measurement.speeds).minutes if measurement else None,
        price_per_hour=plan.recipe.launch.price,
        has_top5=plan.num_classes > 5,
        shows_all_times=process.launch.shows_all_times
        or plan.recipe.evaluation.stop_at_top1 is not None,
    )
