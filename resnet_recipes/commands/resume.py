"""`resnet-train --resume`: go on with a run that has stopped."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from resnet_recipes.errors import Problem, RecipeError

ROOT = Path("runs")


def resume(run: str, words: Sequence[str], recipes: Path | None) -> int:
    """Go on with a run folder, or with `auto` the one of run=NAME or the newest unfinished one; return the exit code.

    `auto` with a recipe starts a new run if there is nothing to go on with: one command for a job that is started again and again.
    """
    if run != "auto":
        return _go_on(Path(run), [word for word in words if not word.startswith("recipe=")])
    named = next((word.removeprefix("run=").removeprefix("run.name=") for word in words if word.startswith(("run=", "run.name="))), None)
    root = next((Path(word.removeprefix("run.root=")).expanduser() for word in words if word.startswith("run.root=")), ROOT)
    folder = root / named if named else newest_unfinished(root)
    changes = [word for word in words if not word.startswith(("recipe=", "run=", "run.name=", "run.root="))]
    if folder and (folder / "config.yaml").is_file():
        # The command that began the run, again: only the machines may be others, as when Slurm starts a job a second time.
        is_first_command = any(word.startswith("recipe=") for word in words)
        return _go_on(folder, [word for word in changes if word.startswith(("gpus=", "launch."))] if is_first_command else changes)
    if any(word.startswith("recipe=") for word in words):
        from resnet_recipes.commands import train
        return train.run([*words, *(["--recipes", str(recipes)] if recipes else [])])
    raise RecipeError([Problem("--resume", "auto", f"no unfinished run is in {root}", "resnet-train recipe=mild data=... starts one")])


def newest_unfinished(root: Path) -> Path | None:
    """Return the run folder that was made last among those without a summary."""
    folders = [path.parent for path in root.glob("*/config.yaml") if not (path.parent / "summary.json").exists()]
    return max(folders, key=lambda folder: (folder / "config.yaml").stat().st_mtime, default=None)


def _go_on(folder: Path, changes: Sequence[str]) -> int:
    """Start the processes of a run again; its frozen recipe says everything, and only what cannot change the result may change."""
    config = folder / "config.yaml"
    if not config.is_file():
        raise RecipeError([Problem("--resume", str(folder), "is no run folder: it has no config.yaml", "resnet-train --resume runs/NAME")])

    from resnet_recipes.commands.train import say
    from resnet_recipes.composing import frozen
    from resnet_recipes.composing.compose import compose
    from resnet_recipes.train import launch
    from resnet_recipes.train.group import group_of
    from resnet_recipes.train.state import changed_settings

    if (folder / "summary.json").exists():
        say(f"{folder} has been trained to its end; its results are in {folder / 'summary.json'}")
        return 0
    began = frozen.read(config)
    if changes:
        recipe = compose(str(config), changes).recipe
        if problems := list(changed_settings(asdict(began), recipe)):
            raise RecipeError(problems)
        partial = config.with_name(".config.yaml")
        partial.write_text(frozen.freeze(recipe), encoding="utf-8")
        partial.replace(config)
        began = recipe
    say(f"resuming {folder}" + (f" with {' '.join(changes)}" if changes else ""))
    return launch.start(folder, group_of(began.launch), say).code
