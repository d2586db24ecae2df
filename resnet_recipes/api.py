"""The commands as functions, for notebooks and other programs.

See `resnet_recipes.__all__`.
"""

import copy
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from resnet_recipes import data
from resnet_recipes.base.errors import Command, Hint, NotReadyError, Problem, RecipeError, Statement
from resnet_recipes.base.field_types import flatten
from resnet_recipes.base.reading import read_json
from resnet_recipes.base.section import Section
from resnet_recipes.base.text import Say, do_nothing
from resnet_recipes.jobs import new_run
from resnet_recipes.jobs.checks import check_validation_images
from resnet_recipes.jobs.initial_weights import adopt_network
from resnet_recipes.jobs.lookup import find_network
from resnet_recipes.jobs.machine.local_plan import plan_here, resolve_plan
from resnet_recipes.jobs.machine.run_time import measure_time
from resnet_recipes.jobs.ranks.rank import LaunchFacts, RankProcess
from resnet_recipes.jobs.ranks.signals import Interruption, handle_signals
from resnet_recipes.planning.estimate import Estimate
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe import compose as composing
from resnet_recipes.recipe import frozen_recipe
from resnet_recipes.recipe.compose import ComposedRecipe
from resnet_recipes.recipe.library import PYTHON_ORIGIN, Library
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder import CONFIG, EXIT, SUMMARY
from resnet_recipes.run_folder.ending import Ending, format_resume, make_ending, write_ending
from resnet_recipes.run_folder.lock import LockedFolder

if TYPE_CHECKING:
    from resnet_recipes.inference.images import OneImage
    from resnet_recipes.inference.trained_network import (
        EvaluationResult,
        Prediction,
        TrainedNetwork,
    )
    from resnet_recipes.network.load import Network

#: Changes of settings: command-line arguments, or values by name.
Changes = str | Mapping[str, object]

#: Called with each record of metrics.jsonl when it is written. If its result is true, the run saves
#: a checkpoint and ends.
Callback = Callable[[dict[str, Any]], object]


class RunResult(NamedTuple):
    """A finished or stopped run."""

    folder: Path
    stopped: str  # why the run ended before its last step and can be resumed; "" if it finished

    def __fspath__(self) -> str:
        """Return the path of the run folder, so that `load(run)` works."""
        return str(self.folder)

    @property
    def summary(self) -> dict[str, Any]:
        """Contents of summary.json. Raises NotReadyError after a stop, or without the file."""
        if self.stopped:
            clause = f"has no summary: it was stopped ({self.stopped})"
            raise NotReadyError.at(self.folder, clause, format_resume(self.folder))
        return read_json(self.folder / SUMMARY)


def compose(
    recipe: str | os.PathLike[str] | Mapping[str, Any], *changes: Changes, **settings: object
) -> Recipe:
    """Return a recipe with changes, given as on the command line.

    For example, `compose("hot", "~methods.sam", {"optimizer.lr": 0.1}, epochs=16)`.

    In your own Hydra application, `recipe` may also be the part of its config that contains a
    recipe; it then takes no changes. Raises RecipeError if the recipe or a change is not valid.
    """
    arguments = _format_changes(changes, settings)
    if isinstance(recipe, str | os.PathLike):
        return compose_arguments(os.fspath(recipe), arguments, needs_data=False).recipe
    if isinstance(recipe, Recipe):
        clause, fix = "is already a recipe", "recipe.optimizer.lr = 0.1"
    elif not isinstance(recipe, Mapping):
        clause = f"is not the name of a recipe, but {_describe_type(recipe)}"
        fix = 'compose("small", "lr=0.1", data="images")'
    elif arguments:
        clause = "is a complete config"
        fix = Hint("change it where your application composes it")
    else:
        return composing.from_config(recipe)
    raise RecipeError.of("recipe", None, clause, fix)


def compose_arguments(
    name: str,
    arguments: Sequence[str],
    folder: Path | Library | None = None,
    needs_data: bool = True,
    networks: "dict[str, Network] | None" = None,
) -> ComposedRecipe:
    """Compose a recipe as `recipe.compose` does, and adopt settings of its pretrained network.

    `networks` keeps the network for other recipes. Raises NotReadyError for a recipe from a run
    folder whose remote images only that folder names.
    """
    result = adopt_network(composing.compose(name, arguments, folder, needs_data), networks)
    if result.origin.entry.path.name == CONFIG:  # from a run folder
        data.require_trusted_url(result.recipe.data, arguments)
    return result


def plan(
    recipe: Recipe | ComposedRecipe,
    ranks: int = 1,
    on_progress: Say = do_nothing,
    needs_weights: bool = True,
) -> Plan:
    """Return the plan of a run of `recipe` on `ranks` devices.

    Without `data.root`, it assumes ImageNet. Counting many images takes a while; `on_progress` gets
    lines of text. Raises RecipeError if the recipe does not fit the images and devices, or its name
    is taken. Raises NotReadyError if images or pretrained weights cannot be used. Without
    `needs_weights`, missing pretrained weights are only a note.
    """
    if not isinstance(ranks, int) or ranks < 1:
        raise RecipeError.of("ranks", ranks, "must be a whole number from 1", "plan(recipe, 8)")
    result = _require_recipe(recipe, needs_data=False)
    survey = partial(data.survey_images, result.recipe.data, on_progress)
    # find_stable_state reports a missing run to extend
    unused = ("launch", "run.extends")
    return new_run.plan_run(result, ranks, survey, unused, needs_weights)


def estimate(recipe: Recipe | ComposedRecipe, on_progress: Say = do_nothing) -> Estimate:
    """Return the predicted time of a run of `recipe` on all devices of this machine.

    Measures for about a minute, unless the machine was measured before; `on_progress` gets lines of
    text. Raises RecipeError and NotReadyError like `plan`, TrainingError if the measurement fails.
    """
    return measure_time(plan_here(_require_recipe(recipe), on_progress), on_progress).estimate


def prepare(
    recipe: Recipe | ComposedRecipe,
    planned: Plan | None = None,
    command: Sequence[str] = ("python",),
) -> Path:
    """Create the folder of a new run and return it.

    `resnet-train --resume FOLDER` trains it, on this or another machine. `planned` is the result of
    `plan(recipe)`, if you have it; it saves a second count of the images. The folder records
    `command`. Raises RecipeError like `plan`, and NotReadyError if a run with the name is running
    or a validation image is unreadable. Raises TrainingError if a measurement for `launch.budget`
    or `batch.bn_size=auto` fails.
    """
    with _create(_require_recipe(recipe), planned, command) as locked_folder:
        return locked_folder.path


def _create(
    result: ComposedRecipe, planned: Plan | None = None, command: Sequence[str] = ("python",)
) -> LockedFolder:
    """Create the folder of a new run, as `prepare` does."""
    if not isinstance(planned, Plan | None):
        rule = f"must be a plan, not {_describe_type(planned)}"
        raise RecipeError.of(
            "planned", None, rule, Hint('"run.root=PATH" in compose() sets the folder')
        )
    planned = resolve_plan(planned or plan(result), partial(print, file=sys.stderr))
    check_validation_images(planned)
    return new_run.create(planned, command)


def _require_recipe(recipe: Recipe | ComposedRecipe, needs_data: bool = True) -> ComposedRecipe:
    """Return a recipe with its origin. Raises RecipeError if it is not valid."""
    if isinstance(recipe, ComposedRecipe):
        return recipe
    if not isinstance(recipe, Recipe):
        name = recipe if isinstance(recipe, str) else "small"
        rule = f"must be a result of compose(), not {_describe_type(recipe)}"
        raise RecipeError.of("recipe", None, rule, f'compose("{name}", data="images")')
    wrong = frozen_recipe.find_problems(recipe)
    RecipeError.raise_if_any(p for p in wrong if needs_data or p.key != "data.root")
    return ComposedRecipe(recipe, replace(PYTHON_ORIGIN, settings=_find_changes(recipe)))


def _find_changes(recipe: Recipe) -> dict[str, str]:
    """Return the settings that differ from the recipe of this name, as `Origin.settings`."""
    values = flatten(frozen_recipe.to_tree(recipe))
    changes: dict[str, str] = {}
    try:
        # a network implies other settings
        for keys in ({"model.name", "model.weights"}, values.keys() - {"about", "published"}):
            origin = compose_arguments(recipe.name, [*changes.values()], needs_data=False).recipe
            before = flatten(frozen_recipe.to_tree(origin))
            changes |= {
                key: f"{key}={_format_value(values[key])}"
                for key in values
                if key in keys and values[key] != before.get(key)
            }
    except (RecipeError, NotReadyError):  # no recipe has this name
        return {}
    removed = [".".join(key.split(".")[:2]) for key in before if key not in values]
    return changes | {key: f"~{key}" for key in removed}


def train(recipe: Recipe, *callbacks: Callback) -> RunResult:
    """Train `recipe` in this process, on one device and return the run.

    Progress goes to stderr. Ctrl-C, the stop button of a notebook and SIGTERM save a checkpoint.
    The signal is then delivered again, so that a loop over seeds also ends. `resnet-train --resume
    FOLDER` continues the run. Each callback receives every record of metrics.jsonl. If one returns
    a true value, the run saves a checkpoint and ends. Raises RecipeError, also for a recipe with
    several devices, TrainingError if the training fails, and the errors of `prepare`.
    """
    result = _require_recipe(recipe)
    RecipeError.raise_if_any(
        [*_find_device_problems(recipe), *map(_find_callback_problem, callbacks)]
    )
    from resnet_recipes.jobs.train import run_task

    interruption = Interruption()
    start = time.monotonic()

    def notify(record: dict[str, Any]) -> None:
        for callback in callbacks:
            if callback(dict(record)):
                interruption.request("a callback asked for it")

    one_device = replace(recipe, launch=replace(recipe.launch, gpus=1))
    heartbeat = _LocalHeartbeat()
    with (
        _create(result._replace(recipe=one_device)) as locked_folder,
        handle_signals(interruption.receive),
    ):
        folder = locked_folder.path
        try:
            launch = LaunchFacts(start)
            process = RankProcess(folder, 0, sys.stderr, launch, interruption, heartbeat, notify)
            code = run_task(process)
            ending = Ending(code, message=interruption.reason if code else "")
        except BaseException as error:
            ending = make_ending(error)
            raise
        finally:
            seconds = time.monotonic() - start
            ending = replace(ending, step=heartbeat.step, seconds=seconds, time=time.time())
            write_ending(folder / EXIT, ending)
    if interruption.signal:
        signal.raise_signal(interruption.signal)
    return RunResult(folder, ending.message if ending.code else "")


def _find_device_problems(recipe: Recipe) -> Iterator[Problem]:
    """Yield the problem of a recipe that one process cannot train."""
    if recipe.launch.gpus not in ("auto", 1):
        clause = Statement("train() uses one device")
        command = Command("resnet-train --resume FOLDER")
        fix = (command, Hint("it trains the folder that prepare(recipe) returns"))
        yield Problem("launch.gpus", recipe.launch.gpus, clause, fix)


def _find_callback_problem(callback: Any) -> Problem | None:
    """Return the problem of a callback that does not take a record; None if it may."""
    fix = Hint("a function of one argument, a record of metrics.jsonl")
    with suppress(ValueError):  # builtins may lack a signature
        try:
            inspect.signature(callback).bind({})
        except TypeError as error:
            clause = Statement(f"{_describe_type(callback)} does not take one record: {error}")
            return Problem("callbacks", None, clause, fix)
    return None


def teach(
    recipe: Recipe, out: str | Path = "labels.safetensors", top: int | str = 10, cycle: int = 0
) -> Path:
    """Store the outputs of a recipe's teacher for its images; return the file.

    `top` is the number of largest outputs to store per image, or "all". `cycle` is the number of
    epochs of full-size crops to store; 0 stores the crops of this run. Progress goes to stderr.
    Raises RecipeError and NotReadyError like `plan`, TrainingError if it was stopped or failed. A
    second call continues the file.
    """
    from resnet_recipes.jobs.teach import plan_soft_labels

    say = partial(print, file=sys.stderr)
    return plan_soft_labels(_require_recipe(recipe), str(top), str(cycle), str(out), say).write(say)


def load(place: str | os.PathLike[str], *changes: Changes) -> "Network":
    """Return the network of a run folder, a checkpoint, a weights file or a published name.

    A run can also be "last" or a name in ./runs, as on the command line; without weights, it means
    its newest checkpoint. A file that does not describe its network is assumed to contain the
    torchvision ResNet whose names match. A change such as "model.name=timm:tf_efficientnet_lite0"
    names another network. Published names are timm:NAME and torchvision:NAME, whose weights must be
    on this machine, and "hf:USER/NAME", which is downloaded.

    The network is on the CPU, in float32, channels_last and evaluation mode. Nothing in a file is
    executed. Raises NotReadyError if it cannot be used.
    """
    from resnet_recipes.inference.open import parse_model
    from resnet_recipes.network.open import open_network

    model, rest = parse_model(_format_changes(changes, {}))
    clause = "cannot be changed here; only model.name and model.args.NAME can"
    RecipeError.raise_if_any(Problem(argument, None, clause) for argument in rest)
    return open_network(str(_find_place(place)), model, downloads=True)


def evaluate(
    place: "str | os.PathLike[str] | Network", *changes: Changes, **settings: object
) -> "EvaluationResult":
    """Evaluate a run, a checkpoint, a weights file or a network in this process, on one device.

    Returns the metrics, and the outcome for each image. Takes the changes of `resnet-recipes eval`,
    except `gpus` and `evaluation.sizes`: `evaluate("runs/a", "data.eval_size=256", data="images")`.
    A network needs `data`. Raises RecipeError if a change is wrong, NotReadyError if the network or
    the images cannot be read, TrainingError if the evaluation fails.
    """
    arguments = _format_changes(changes, settings)
    network = _open_trained(place, arguments)
    data.require_trusted_url(network.recipe.data, arguments, Hint("evaluate with"))
    return network.evaluate()


def predict(
    place: "str | os.PathLike[str] | Network",
    images: "OneImage | Iterable[OneImage]",
    *changes: Changes,
    **settings: object,
) -> Iterator["Prediction"]:
    """Yield the predictions for images by a run, a checkpoint, a weights file or a network.

    Images are paths, folders of images, bytes of a file, Pillow images, arrays, uint8 [height,
    width, 3], or tensors, uint8 [3, height, width]. The `file` of an image in memory is its number:
    "image 0".

    Takes the same changes as `evaluate`. Raises RecipeError and NotReadyError like `evaluate`,
    TrainingError if the outputs for an image are not finite. A prediction has an `error` if its
    image cannot be read.
    """
    from resnet_recipes.inference.images import collect_images, find_images
    from resnet_recipes.inference.trained_network import predict_images

    paths = find_images(collect_images(images))
    return predict_images(_open_trained(place, _format_changes(changes, settings)), paths)


def _open_trained(place: object, arguments: Sequence[str]) -> "TrainedNetwork":
    """Return the network of a place, or a copy of a network, on a device."""
    from resnet_recipes.inference.open import open_trained
    from resnet_recipes.network.load import Network

    if isinstance(place, Network):
        return open_trained(copy.deepcopy(place).float().eval(), arguments).to_device()
    return open_trained(_find_place(place), arguments).to_device()


def _find_place(place: object) -> Path:
    """Return the path of a run or a file. Raises RecipeError if `place` does not name one."""
    if not isinstance(place, str | os.PathLike):
        rule = f"must name a run, a checkpoint or a weights file, not {_describe_type(place)}"
        raise RecipeError.of("place", None, rule, ('"last"', "run.folder"))
    return find_network(os.fspath(place), "place")


def _format_changes(changes: Sequence[object], settings: Mapping[str, object]) -> list[str]:
    """Return changes as command-line arguments. Raises RecipeError for values of other types."""
    arguments: list[str] = []
    problems = []
    for change in (*changes, settings):
        if isinstance(change, Mapping):
            arguments += _iterate_settings(change, "")
        elif isinstance(change, str):
            arguments.append(change)
        else:
            rule = f"must be text or a mapping, not {_describe_type(change)}"
            fix = ('"lr=0.1"', '{"optimizer.lr": 0.1}', "lr=0.1")
            problems.append(Problem("changes", None, rule, fix))
    RecipeError.raise_if_any(problems)
    return arguments


def _iterate_settings(values: Mapping[str, object], section: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _iterate_settings(value, f"{section}{name}.")
        elif isinstance(value, Section):
            clause = f"cannot be {_describe_type(value)} here"
            fix = f"recipe.{section}{name} = {type(value).__name__}(...)"
            raise RecipeError.of(f"{section}{name}", None, clause, fix)
        else:
            yield f"{section}{name}={_format_value(value)}"


def _format_value(value: object) -> str:
    """Return a Python value as written on the command line."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_format_value, value))}]"
    return "null" if value is None else str(value)


def _describe_type(value: object) -> str:
    is_short = value is None or isinstance(value, int | float | str)
    return repr(value) if is_short else f"a {type(value).__name__}"


class _LocalHeartbeat:
    """A heartbeat that is not written, since no launcher reads it."""

    step = 0

    def beat(self, step: int, phase: str) -> None:
        self.step = step
