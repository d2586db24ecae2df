"""Several runs side by side: what differs, and how much seeds alone change the result."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.base.reading import read_json
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.run_folder.names import CONFIG, ENVIRONMENT
from resnet_recipes.run_folder.runs import RunRecord, read_run

#: Settings that may differ between runs of the same configuration.
_OWN = ("seed", "run.name", "about", "published")


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seeds."""

    runs: tuple[RunRecord, ...]

    @property
    def top1(self) -> tuple[float, ...]:
        """Accuracies of the finished runs, in percent."""
        return tuple(
            r.top1_percent
            for r in self.runs
            if r.state == "finished" and r.top1_percent is not None
        )

    @property
    def mean_top1(self) -> float | None:
        """Mean accuracy of the finished runs."""
        return mean(self.top1) if self.top1 else None

    @property
    def noise(self) -> float | None:
        """Standard deviation of one run's accuracy over seeds; None below two finished runs."""
        return stdev(self.top1) if len(self.top1) > 1 else None

    @property
    def minutes(self) -> float | None:
        """Mean training minutes of the finished runs."""
        known = [r.minutes for r in self.runs if r.state == "finished" and r.minutes is not None]
        return mean(known) if known else None


def settings(folder: Path) -> dict[str, str]:
    """Return every setting of a run with a dotted key, as text.

    Raises NotReadyError if it has no readable recipe.
    """
    try:
        return flat(strict_yaml.load(folder / CONFIG).tree)
    except RecipeError as error:
        raise NotReadyError(error.problems) from None


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return a nested mapping with dotted keys; a method without settings is "on"."""
    leaves: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and (value or not prefix):  # a section may be empty: methods: {}
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = "on" if value == {} else str(value)
    return leaves


def machine(folder: Path) -> dict[str, str]:
    """Return what a run ran on: versions and machine, with dotted keys.

    Empty if it was not recorded.
    """
    found = read_json(folder / ENVIRONMENT, may_be_absent=True)
    return flat({key: found[key] for key in ("python", "packages", "machine") if key in found})


def differences(sides: Sequence[dict[str, str]]) -> list[tuple[str, list[str]]]:
    """Return the keys whose values are not the same everywhere, with the value of each side.

    "-" where it has none.
    """
    keys = dict.fromkeys(key for side in sides for key in side)
    rows = [(key, [side.get(key, "-") for side in sides]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def grouped(runs: Iterable[RunRecord]) -> list[Group]:
    """Put runs of the same recipe and settings, seeds aside, into a group each, in their order."""
    groups: dict[tuple[tuple[str, str], ...], list[RunRecord]] = {}
    for run in runs:
        key = tuple(item for item in sorted(settings(run.folder).items()) if item[0] not in _OWN)
        groups.setdefault(key, []).append(run)
    return [Group(tuple(group)) for group in groups.values()]


def read_all(folders: Sequence[Path]) -> list[RunRecord]:
    """Read run folders. Raises NotReadyError naming each folder that is not one, or is damaged."""
    runs = [read_run(folder) or RunRecord(folder=folder, state="unreadable") for folder in folders]
    if wrong := [run for run in runs if run.state == "unreadable"]:
        fix = "list runs: resnet-recipes runs"
        raise NotReadyError(
            Problem(str(run.folder), None, run.reason or "is not a run folder", fix)
            for run in wrong
        )
    return runs
