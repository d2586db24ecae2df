"""Compare recipes for some images on this machine by duration, time, cost and accuracy."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from math import inf
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from resnet_recipes import data
from resnet_recipes.base.errors import Kind, NotReadyError, Problem, RecipeError
from resnet_recipes.base.field_types import flatten
from resnet_recipes.base.text import Say, do_nothing, format_count
from resnet_recipes.data.base import DataConfig, DataFacts
from resnet_recipes.data.files import Files
from resnet_recipes.data.images.decode import BadImageError, Picture, read_file
from resnet_recipes.jobs.initial_weights import adopt_network
from resnet_recipes.jobs.machine.budget import fit_duration
from resnet_recipes.jobs.machine.run_time import predict_time
from resnet_recipes.jobs.ranks.group import count_ranks
from resnet_recipes.network import pretrained
from resnet_recipes.planning.estimate import Estimate, estimate
from resnet_recipes.planning.plan import IMAGENET_FACTS, Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.planning.published_results import (
    IMAGENET_IMAGES,
    Accuracy,
    estimate_accuracy,
    find_epochs_for_accuracy,
)
from resnet_recipes.planning.stable_phase import change_duration
from resnet_recipes.recipe import frozen_recipe
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.report.comparison import VARYING_SETTINGS
from resnet_recipes.run_folder import CONFIG
from resnet_recipes.run_folder.runs import iterate_runs, read_image_facts

#: Images with a smaller dimension of at most this many pixels are small.
MAX_SMALL_SIZE = 96

MAX_MEASURED_IMAGES = 16

#: Settings that may differ in a run of the same recipe on the same images: a key, or a section.
_FREE_SETTINGS = (
    *VARYING_SETTINGS,
    "max_duration",
    "scale_schedule_ratio",
    "data.root",
    "data.val_share",
    "data.val_seed",
    "data.workers",
    "data.memory_pixels",
    "launch.",
)


class Candidate(NamedTuple):
    """A recipe with a duration."""

    plan: Plan
    estimate: Estimate | None  # None: unknown
    is_measured: bool
    accuracy: Accuracy | None  # None: unknown


class Candidates(NamedTuple):
    """The result of `find_candidates`."""

    options: list[Candidate]  # best first, or by recipe
    reason: str  # why the first candidate, or else suitable[0], is the best; empty if it is not
    suitable: tuple[str, ...]  # recipes to prefer for these images, best first; none for ImageNet
    skipped: dict[str, Problem]  # recipes that do not fit
    untimed: set[str]  # recipes without candidates: with a budget, their time is unknown
    weights_problems: dict[Problem, list[str]]  # with the recipes whose weights cannot be read


def find_candidates(
    arguments: Sequence[str],
    folder: Path | None,
    names: Sequence[str],
    min_top1_percent: float | None = None,
    say: Say = do_nothing,
    needs_data: bool = True,
) -> Candidates:
    """Return the candidates of some recipes with these changes.

    With a budget, this is the longest run of each recipe, best first. With `min_top1_percent`, it
    is the shortest run with at least this known accuracy, fastest first. Otherwise it is every
    duration with a known accuracy, and the default duration. If a recipe lacks images, or if all
    are skipped and one has errors, raises the RecipeError of the best recipe, or else of mild.

    A recipe for other or smaller images is skipped if there are several. One whose weights cannot
    be read is not: most can be downloaded. Without `needs_data`, the default images are ImageNet.
    """
    candidates = list[Candidate]()
    skipped = dict[str, Problem]()
    errors = dict[str, RecipeError]()
    weights_problems = defaultdict[Problem, list[str]](list)
    facts, results, image_size, reason, root = None, None, 0.0, "", ""
    best: tuple[str, ...] = ()
    for name in names:
        try:
            composed = compose(name, arguments, folder, needs_data)
            recipe = composed.recipe
            if facts is None:
                facts, root = _survey(recipe.data, say), recipe.data.root
                image_size = find_typical_size(recipe.data, facts)
                best, reason = rank_recipes(facts, image_size)
            if len(names) > 1 and (misfit := _find_image_problem(recipe.data, root, image_size)):
                skipped[name] = misfit
                continue
            results = find_results(Path(recipe.run.root), facts) if results is None else results
            plan = make_plan(recipe, facts, count_ranks(recipe.launch), composed.origin)
            adopted = adopt_network(composed)
            if adopted.recipe != recipe:
                plan = make_plan(adopted.recipe, facts, plan.world_size, composed.origin)
            candidates += _find_durations(plan, results, min_top1_percent)
            try:
                if recipe.model.weights:
                    pretrained.find_weights(recipe.model, facts.classes, adopted.network)
            except NotReadyError as error:
                weights_problems[error.problems[0]].append(name)
        except RecipeError as error:
            errors[name] = error
            skipped[name] = error.problems[0]
    missing = {problem.key for problem in skipped.values() if problem.kind is Kind.MISSING}
    if errors and (len(skipped) == len(names) or "data.root" in missing):
        raise next(errors[name] for name in (*best, "mild", *names) if name in errors)
    has_budget = any("launch.budget" in option.plan.origin.settings for option in candidates)
    by_accuracy = has_budget and min_top1_percent is None
    candidates = _sort_candidates(candidates, [*best, *names], by_accuracy, min_top1_percent)
    for first in candidates[:1]:
        is_best = first.plan.recipe.name == best[0] if best else by_accuracy and first.accuracy
        reason = reason if is_best else ""
    untimed = {*names} - {*skipped} - {option.plan.recipe.name for option in candidates}
    return Candidates(candidates, reason, best, skipped, untimed, weights_problems)


def _survey(config: DataConfig, say: Say) -> DataFacts:
    """Return the facts about the images of a recipe, or ImageNet's if it has none."""
    return data.survey_images(config, on_progress=say) if config.has_images else IMAGENET_FACTS


def _find_image_problem(config: DataConfig, root: str, image_size: float) -> Problem | None:
    """Return the problem of a recipe that is not for the images in `root`, or None."""
    if config.root != root:
        return Problem("data.root", config.root, "has other images")
    if config.train_size <= MAX_SMALL_SIZE < image_size:
        clause = f"is for smaller images than these, of {image_size:g} px"
        return Problem("data.train_size", config.train_size, clause)
    return None


def _sort_candidates(
    candidates: list[Candidate],
    order: Sequence[str],
    by_accuracy: bool,
    min_top1_percent: float | None,
) -> list[Candidate]:
    """Return candidates by accuracy or, with `min_top1_percent`, by time, and then by recipe."""

    def make_key(option: Candidate) -> tuple[float, int]:
        value = 0.0
        if min_top1_percent is not None:
            value = option.estimate.max_minutes if option.estimate else inf
        elif by_accuracy and option.accuracy:
            value = -option.accuracy.top1
        return value, order.index(option.plan.recipe.name)

    return sorted(candidates, key=make_key)


def _find_durations(
    plan: Plan, results: Mapping[tuple[str, float], Accuracy], min_top1_percent: float | None
) -> Iterator[Candidate]:
    """Yield the durations of one recipe. Raises RecipeError if its budget is too small."""
    forecast = predict_time(plan)
    settings = _format_settings(plan.recipe)
    own_accuracies = {
        Fraction(round(epochs * plan.steps_per_epoch), plan.steps_per_epoch): accuracy
        for (run_settings, epochs), accuracy in results.items()
        if run_settings == settings
    }
    if plan.recipe.launch.budget:
        plans = [fit_duration(plan, forecast)] if forecast else []
    else:
        if min_top1_percent is None:
            durations = {plan.horizon.epochs, *own_accuracies}
            durations |= {Fraction(result.epochs) for result in plan.published if result.epochs}
        else:
            sufficient = [
                epochs
                for epochs, accuracy in own_accuracies.items()
                if accuracy.top1 >= min_top1_percent
            ]
            published = find_epochs_for_accuracy(plan.published, min_top1_percent, own_accuracies)
            sufficient += [Fraction(published)] if published else []
            durations = {*sorted(sufficient)[:1]}
        plans = [change_duration(plan, epochs) for epochs in sorted(durations)]
    for changed in plans:
        yield Candidate(
            changed,
            estimate(changed, forecast.speeds) if forecast else None,
            bool(forecast and forecast.when),
            own_accuracies.get(changed.horizon.epochs)
            or estimate_accuracy(plan.published, changed.epochs),
        )


def find_results(root: Path, facts: DataFacts) -> dict[tuple[str, float], Accuracy]:
    """Return the mean accuracies of runs on the same training images, by settings and epochs.

    Counts only finished runs. The settings are the result of `_format_settings`.
    """
    accuracies = defaultdict[tuple[str, float], list[float]](list)
    for run in iterate_runs(root) if root.is_dir() else ():
        if run.state != "finished" or run.top1_percent is None or not run.epochs:
            continue
        with suppress(RecipeError):  # a damaged file
            if read_image_facts(run.folder).get("train_digest") == facts.train_digest:
                settings = _format_settings(frozen_recipe.read(run.folder / CONFIG))
                accuracies[settings, run.epochs].append(run.top1_percent)
    return {
        key: Accuracy(mean(top1), format_count(len(top1), "own run"))
        for key, top1 in accuracies.items()
    }


def _format_settings(recipe: Recipe) -> str:
    """Return all settings of a recipe as text, except `_FREE_SETTINGS`."""
    settings = sorted(flatten(frozen_recipe.to_tree(recipe)).items())
    return str([item for item in settings if not item[0].startswith(_FREE_SETTINGS)])


class Ranking(NamedTuple):
    """Recipes for some images, best first."""

    names: tuple[str, ...]
    reason: str  # reason for the order


def rank_recipes(facts: DataFacts, image_size: float) -> Ranking:
    """Return the recipes for images without published results; none for ImageNet.

    `image_size` is the result of `find_typical_size`.
    """
    if facts.train_examples == IMAGENET_IMAGES:
        return Ranking((), "the most accurate according to published results")
    if 0 < image_size <= MAX_SMALL_SIZE:
        return Ranking(("small", "finetune", "mild"), f"best for images of {image_size:g} px")
    clause = f"; the shorter side of the images is about {image_size:g} px" if image_size else ""
    reason = f"best here because it starts from weights trained on ImageNet{clause}"
    return Ranking(("finetune", "mild"), reason)


def find_typical_size(config: DataConfig, facts: DataFacts) -> float:
    """Return the median of the smaller dimension of some training images, in pixels.

    0 if it is unknown, or for ImageNet, which has published results.
    """
    can_read_sizes = facts.backend == "torchvision" and os.path.exists(config.root)
    if not can_read_sizes or facts.train_examples == IMAGENET_IMAGES:
        return 0.0
    files = Files.of(config, "train", facts.train_digest)
    sizes = []
    for index in range(0, len(files), max(1, -(-len(files) // MAX_MEASURED_IMAGES))):
        with suppress(BadImageError):
            image = Picture(read_file(files.path(index)))
            sizes.append(min(image.height, image.width))
    return median(sizes) if sizes else 0.0
