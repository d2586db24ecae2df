"""`resnet-train --resume`: go on with a run that has stopped."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from resnet_recipes import atomic
from resnet_recipes.errors import Problem, RecipeError

ROOT = Path("runs")


def find(run: str, words: Sequence[str]) -> tuple[Path, list[str]] | None:
    """Return the folder to go on in, and the settings to change: `run`, or with `auto` that of run=NAME, or the newest unfinished one.

    None if `auto` finds nothing, and the words have a recipe to begin with: one command for a job that is started again and again.
    """
    if run != "auto":
        return Path(run), [word for word in words if not word.startswith("recipe=")]
    named = next((word.removeprefix("run=").removeprefix("run.name=") for word in words if word.startswith(("run=", "run.name="))), None)
    root = root_of(words)
    folder = root / named if named else newest_unfinished(root)
    changes = [word for word in words if not word.startswith(("recipe=", "run=", "run.name=", "run.root="))]
    is_first_command = any(word.startswith("recipe=") for word in words)
    if folder and (folder / "config.yaml").is_file():
        # The command that began the run, again: only the machines may be others, as when Slurm starts a job a second time.
        return folder, [word for word in changes if word.startswith(("gpus=", "launch."))] if is_first_command else changes
    if is_first_command:
        return None
    raise RecipeError([Problem("--resume", "auto", f"no unfinished run is in {root}", "resnet-train recipe=mild data=... starts one")])


def root_of(words: Sequence[str]) -> Path:
    """Return the folder of all runs, as the words have it."""
    return next((Path(word.removeprefix("run.root=")).expanduser() for word in words if word.startswith("run.root=")), ROOT)


def newest_unfinished(root: Path) -> Path | None:
    """Return the run folder that was made last among those without a summary."""
    folders = [path.parent for path in root.glob("*/config.yaml") if not (path.parent / "summary.json").exists()]
    return max(folders, key=lambda folder: (folder / "config.yaml").stat().st_mtime, default=None)


def go_on(folder: Path, changes: Sequence[str], say: Callable[[str], None]) -> Path | None:
    """Return the folder when it is ready to go on; None if it is done. Only what cannot change the result may change."""
    config = folder / "config.yaml"
    if not config.is_file():
        raise RecipeError([Problem("--resume", str(folder), "is no run folder: it has no config.yaml", "resnet-train --resume runs/NAME")])

    from resnet_recipes.composing import frozen
    from resnet_recipes.composing.compose import compose
    from resnet_recipes.train.state import changed_settings

    if (folder / "summary.json").exists():
        say(f"{folder} has been trained to its end; its results are in {folder / 'summary.json'}")
        return None
    began = frozen.read(config)
    if changes:
        recipe = compose(str(config), changes).recipe
        if problems := list(changed_settings(asdict(began), recipe)):
            raise RecipeError(problems)
        atomic.write_text(config, frozen.freeze(recipe))        # every node may do this, at once
    say(f"resuming {folder}" + (f" with {' '.join(changes)}" if changes else ""))
    return folder
