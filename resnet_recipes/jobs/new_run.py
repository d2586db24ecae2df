"""Create the folder of a new run, which appears atomically and documents the training."""

import errno
import hashlib
import itertools
import json
import os
import platform
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnet_recipes import __version__, backbones, data
from resnet_recipes.base import atomic
from resnet_recipes.base.cores import count_cores
from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Command, Hint, NotReadyError, RecipeError, Statement, Value
from resnet_recipes.base.paths import find_folder_problem, is_fetched
from resnet_recipes.base.reading import read_bytes
from resnet_recipes.data.base import DataFacts
from resnet_recipes.data.demo import DEMO_FACTS
from resnet_recipes.data.root import find_root_problem
from resnet_recipes.jobs.extension import find_stable_state
from resnet_recipes.jobs.initial_weights import find_initial_weights
from resnet_recipes.jobs.ranks.group import find_group_problems
from resnet_recipes.planning import outline
from resnet_recipes.planning.disk import Disk
from resnet_recipes.planning.plan import IMAGENET_FACTS, InitialWeights, Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.planning.teachers import open_teachers
from resnet_recipes.recipe import frozen_recipe
from resnet_recipes.recipe.schema import Recipe, get_enabled
from resnet_recipes.recipe.sections import RunConfig
from resnet_recipes.report import trackers
from resnet_recipes.run_folder import (
    ALL_CHECKPOINTS,
    CHECKPOINTS,
    COMMAND,
    CONFIG,
    DATA,
    ENVIRONMENT,
    METRICS,
    OVERRIDES,
    PLAN,
    PROVENANCE,
    SUMMARY,
)
from resnet_recipes.run_folder.ending import format_resume
from resnet_recipes.run_folder.lock import LockedFolder, is_running, reject_links
from resnet_recipes.run_folder.runs import can_resume

if TYPE_CHECKING:  # ranks never import Hydra
    from resnet_recipes.recipe.compose import ComposedRecipe

PACKAGES = ("torch", "torchvision", "numpy", "pillow", "hydra-core", "omegaconf")


def plan_run(
    composed: "ComposedRecipe",
    ranks: int,
    survey: Callable[[], DataFacts],
    skipped: Collection[str] = (),
    needs_weights: bool = True,
) -> Plan:
    """Return the plan of a new run; if the recipe names no images, it assumes ImageNet.

    Raises RecipeError if recipe, images and devices conflict, and the errors of `check_machine`.
    """
    recipe = composed.recipe
    has_images = recipe.data.has_images
    facts = IMAGENET_FACTS
    errors = ErrorCollector()
    result, start = None, None
    with errors:
        facts = survey() if has_images else facts
        result = make_plan(recipe, facts, ranks, composed.origin)
    needs_weights &= bool(result) or facts is IMAGENET_FACTS  # a wrong setting comes first
    with errors:
        if not (has_images and recipe.run.extends):
            start = find_initial_weights(recipe, facts, needs_weights, composed.network)
    checked = {"data", *(() if errors.problems else ("model", "methods"))}
    with errors:
        if has_images:
            disk = result.disk if result else None
            check_machine(recipe, disk, {*skipped, *checked}, needs_weights)
    errors.raise_if_any()
    assert result
    if has_images and (state := find_stable_state(result)):
        start = InitialWeights(str(state), is_stable_phase=True)
    return replace(result, start=start)


def check_machine(
    recipe: Recipe,
    disk: Disk | None = None,
    skipped: Collection[str] = (),
    needs_weights: bool = True,
) -> None:
    """Check that this machine has what a new run needs.

    Skips settings in `skipped`: they are wrong, have no effect or are already checked. Raises
    RecipeError if the name is taken, NotReadyError if something is missing or the run is running.
    """
    run = recipe.run
    errors = ErrorCollector()
    space = (disk.total_bytes, f"the run needs {disk}") if disk else ()
    root = recipe.data.root
    methods = get_enabled(recipe.methods)
    is_local = root and recipe.data.backend != "synthetic" and not is_fetched(root)
    skipped = {*skipped}
    if not is_local or is_demo_missing(recipe):
        skipped.add("data.root")
    if run.extends:
        skipped.add("model.weights")
    teaching = tuple(
        f"methods.{name}." for name, method in methods.items() if method.network_setting
    )
    missing = NotReadyError.raise_if_any
    checks: dict[tuple[str, ...], Callable[[], object]] = {
        ("data.root", "data.backend"): lambda: missing([find_root_problem(root)]),
        ("data.",): lambda: data.survey_images(recipe.data),
        ("model.name",): lambda: backbones.require_network(recipe.model.name),
        ("model.",): lambda: find_initial_weights(recipe, IMAGENET_FACTS, needs_weights),
        teaching: lambda: [*open_teachers(methods.values())],
        ("launch.gpus", "launch.device"): lambda: missing(find_group_problems(recipe.launch)),
        ("log.to",): lambda: missing(trackers.find_tracker_problems(recipe.log.to)),
        ("run.root",): lambda: missing([find_folder_problem("run.root", Path(run.root), *space)]),
        ("run.root", "run.name"): lambda: check_name(run),
        ("run.extends",): lambda: check_extended(run),
    }
    for keys, check_setting in checks.items():
        pairs = itertools.product(skipped, keys)
        if not any(key.startswith(read) or read.startswith(f"{key}.") for key, read in pairs):
            with errors:
                check_setting()
    errors.raise_if_any()


def is_demo_missing(recipe: Recipe) -> bool:
    """Return whether a recipe reads demo images that do not exist yet."""
    root = Path(recipe.data.root)
    return recipe.name == "demo" and root == DEMO_FACTS.root.absolute() and not root.exists()


def check_extended(run: RunConfig) -> None:
    """Raise RecipeError if the run to extend does not exist."""
    folder = Path(run.root, run.extends)
    if run.extends and not (folder / CONFIG).is_file():
        fix = Command.of("resnet-recipes", "runs", run.root)
        clause = Statement(f"there is no run {folder}")
        raise RecipeError.of("run.extends", run.extends, clause, fix)


def check_name(run: RunConfig) -> None:
    """Raise RecipeError if the name of a new run is taken, NotReadyError if the run is running."""
    folder = Path(run.root, run.name)
    if run.name != "auto" and os.path.lexists(folder) and not _is_free(folder):
        raise _make_taken_error(folder)


def create(plan: Plan, command: Sequence[str]) -> LockedFolder:
    """Create the run folder, with everything known before the start; return it locked.

    It is built under a temporary name, so that a kill or a full disk leaves nothing that blocks the
    name. It is locked from the start, so that no other command with this name replaces it before
    its ranks start. Raises RecipeError if the name is taken, and NotReadyError if a run with the
    name is running or the folder cannot be written. Also raises the errors of `find_stable_state`.
    """
    recipe, settings = plan.recipe, plan.origin.settings
    config = frozen_recipe.freeze(recipe)
    state = find_stable_state(plan)
    origin = collect_provenance(plan, config)
    if state:
        settings = state.read_overrides() | settings
        origin["extends"] = str(state)
    files = {
        CONFIG: config,
        DATA: plan.facts.to_json(),
        COMMAND: shlex.join(command) + "\n",
        OVERRIDES: "".join(f"{setting}\n" for setting in settings.values()),
        PLAN: "\n".join(outline.format_lines(outline.describe_plan(plan))) + "\n",
        PROVENANCE: json.dumps(origin, indent=2) + "\n",
        ENVIRONMENT: json.dumps(describe_environment(), indent=2) + "\n",
    }
    draft = Path(recipe.run.root) / f".{secrets.token_hex(8)}.tmp"
    with ExitStack() as stack:
        stack.callback(atomic.delete_folder, draft)
        try:
            draft.mkdir(parents=True)
            locked_folder = stack.enter_context(LockedFolder(draft))
            for name, content in files.items():
                atomic.write_text(draft / name, content)
            if state:
                state.put_into(draft, recipe)
            _move_into_place(locked_folder, plan)
        except NotReadyError as error:
            raise error.with_path_replaced(draft, str(draft.parent)) from None
        except OSError as error:
            clause = f"cannot be written to: {error.strerror}"
            fix = "run.root=/your/folder"
            raise NotReadyError.of("run.root", recipe.run.root, clause, fix) from None
        stack.pop_all()
        return locked_folder


def collect_provenance(plan: Plan, config: str) -> dict[str, Any]:
    """Return the origin of the recipe: its files, their digests, and the git commit around it."""
    entry = plan.origin.entry
    return {
        "recipe": plan.recipe.name,
        "epochs": plan.epochs,
        "origin": entry.origin,
        "files": plan.origin.files,
        "config_sha256": hashlib.sha256(config.encode()).hexdigest(),
        "resnet_recipes": __version__,
        "git_commit": _read_commit(entry.path.parent),
    }


def describe_environment() -> dict[str, Any]:
    """Return the versions of packages, and facts about the machine.

    Environment variables are omitted, since they may contain secrets.
    """
    return {
        "python": platform.python_version(),
        "packages": {name: _find_version(name) for name in PACKAGES},
        "machine": {"host": platform.node(), "system": platform.platform(), "cores": count_cores()},
        "executable": sys.executable,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _move_into_place(draft: LockedFolder, plan: Plan) -> None:
    """Move a complete folder to its final name."""
    root, name = draft.path.parent, plan.recipe.run.name
    if name == "auto":
        while not _try_move(draft, root / _make_name(plan)):
            pass
        return
    folder = root / name
    if _try_move(draft, folder):
        return
    if _is_unused(folder) and not is_running(folder):
        reject_links(folder)
        away = root / f".{secrets.token_hex(8)}.tmp"
        with LockedFolder(folder) as other:
            if _is_unused(folder):
                # a move is atomic, so a run that another command starts has all of its files
                other.move(away)
        atomic.delete_folder(away)
        if _try_move(draft, folder):
            return
    raise _make_taken_error(folder)


def _is_free(folder: Path) -> bool:
    """Return whether a new run may replace a folder."""
    is_empty = folder.is_dir() and not folder.is_symlink() and not os.listdir(folder)
    return is_empty or (_is_unused(folder) and not is_running(folder))


def _make_taken_error(folder: Path) -> RecipeError:
    if is_running(folder):
        watch = Command.of("resnet-recipes", "watch", str(folder))
        fix = (watch, Hint("or choose another name"))
        return NotReadyError.of("run.name", folder.name, f"is already running in {folder}", fix)
    names = (f"{folder.name}-{number}" for number in itertools.count(2))
    free = next(name for name in names if not os.path.lexists(folder.with_name(name)))
    fixes = (Value(free), format_resume(folder) if can_resume(folder) else "")
    return RecipeError.of("run.name", folder.name, f"is taken: {folder} already exists", fixes)


def _try_move(draft: LockedFolder, folder: Path) -> bool:
    """Rename a folder and return True; False if a file or a nonempty folder has the name."""
    try:
        draft.move(folder)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        raise
    return True


def _make_name(plan: Plan) -> str:
    recipe = plan.recipe
    day = time.strftime("%Y%m%d")
    parts = [recipe.name, f"{plan.epochs:.3g}ep", f"s{recipe.seed}", day]
    return "-".join([*parts, secrets.token_hex(2)])


def _is_unused(folder: Path) -> bool:
    """Return whether a folder has the recipe of a run, but no steps, checkpoints or weights."""
    metrics = folder / METRICS
    has_trained = (
        any((folder / CHECKPOINTS).glob(ALL_CHECKPOINTS))
        or any(path.suffix in (".pt", ".safetensors") for path in folder.rglob("*"))
        or (folder / SUMMARY).exists()
        or (os.path.lexists(metrics) and b'"kind": "step"' in read_bytes(metrics))
    )
    return (folder / CONFIG).is_file() and not has_trained


def _read_commit(folder: Path) -> str | None:
    """Return the commit checked out in the repository around a folder, or None.

    Unlike `status`, `rev-parse` runs no program named in the repository's configuration.
    """
    command = ["git", "-C", str(folder), "rev-parse", "--verify", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
