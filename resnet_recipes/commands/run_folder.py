"""The folder of a new run: made once, with everything needed to tell later what was run."""

import hashlib
import json
import os
import platform
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from resnet_recipes import __version__, atomic, outline
from resnet_recipes.composing.compose import Composed
from resnet_recipes.composing.frozen import freeze
from resnet_recipes.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.plan import Plan

PACKAGES = ("torch", "torchvision", "numpy", "pillow", "hydra-core", "omegaconf", "simplejpeg", "ffcv")


def create(composed: Composed, plan: Plan, command: Sequence[str]) -> Path:
    """Make the run folder, write what is known before the start, and return it. Raises RecipeError if the name is taken."""
    recipe = composed.recipe
    text = freeze(recipe)
    if recipe.launch.fewest_and_most_nodes[1] > 1 and recipe.run.name == "auto":
        raise RecipeError([Problem("run.name", "auto", "must be given for several nodes: they meet in one folder", "run=NAME")])
    folder, is_new = _made(composed, plan)
    if not is_new and not (recipe.launch.fewest_and_most_nodes[1] > 1 and _joins(folder, text)):
        raise RecipeError([Problem("run.name", recipe.run.name, f"is taken: {folder} is there already",
                                   f"choose another, or go on with it: resnet-train --resume {folder}")])
    files = {
        "command.txt": shlex.join(command) + "\n",
        "overrides.txt": "".join(f"{override}\n" for override in composed.overrides),
        "plan.txt": "\n".join(outline.lines(outline.rows(plan))) + "\n",
        "provenance.json": json.dumps(provenance(composed, text), indent=2) + "\n",
        "env.json": json.dumps(environment(), indent=2) + "\n",
        "config.yaml": text,            # last: a folder that has it is complete
    }
    for name, content in files.items():
        atomic.write_text(folder / name, content)
    return folder


def provenance(composed: Composed, frozen: str) -> dict[str, Any]:
    """Return where the recipe is from: its files, their digests, and the state of their repository."""
    return {
        "recipe": composed.recipe.name,
        "origin": composed.entry.origin,
        "files": composed.files,
        "config_sha256": hashlib.sha256(frozen.encode()).hexdigest(),
        "resnet_recipes": __version__,
        "git": _git(composed.entry.path.parent),
    }


def environment() -> dict[str, Any]:
    """Return what the run ran on: versions and machine; no environment variable, since those hold secrets."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": {"host": platform.node(), "system": platform.platform(), "cores": os.cpu_count()},
        "executable": sys.executable,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _made(composed: Composed, plan: Plan) -> tuple[Path, bool]:
    """Make a folder of its own by one atomic call; return it and whether it is new."""
    run = composed.recipe.run
    root = Path(run.root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        while True:
            folder = root / (run.name if run.name != "auto" else _name(composed, plan))
            try:
                folder.mkdir()
                return folder, True
            except FileExistsError:
                if run.name != "auto":
                    return folder, False
    except OSError as error:
        raise NotReadyError([Problem("run.root", run.root, f"cannot be written to: {error.strerror}", "run.root=/your/folder")]) from None


def _name(composed: Composed, plan: Plan) -> str:
    recipe, length = composed.recipe, f"{float(plan.epochs):.3g}ep"
    return "-".join([recipe.name, length, f"s{recipe.seed}", time.strftime("%Y%m%d"), secrets.token_hex(2)])


def _joins(folder: Path, text: str) -> bool:
    """Tell whether the folder is that of this very run, made by another node; that node may still be writing."""
    deadline = time.monotonic() + 60
    while not (folder / "config.yaml").is_file() and time.monotonic() < deadline:
        time.sleep(0.5)
    return (folder / "config.yaml").is_file() and (folder / "config.yaml").read_text(encoding="utf-8") == text


def _git(folder: Path) -> dict[str, Any] | None:
    """Return commit and cleanliness of the repository around a folder; None outside of one."""
    def ask(*words: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        return {"commit": ask("rev-parse", "HEAD"), "changed_files": ask("status", "--porcelain", "--untracked-files=no").splitlines()}
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
