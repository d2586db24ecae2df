"""Compare runs: the settings that differ, and the spread over seeds."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from resnet_recipes.base import duration
from resnet_recipes.base.error_collector import collect
from resnet_recipes.base.errors import Command, NotReadyError, Statement
from resnet_recipes.base.field_types import flatten
from resnet_recipes.base.names import find_short_name
from resnet_recipes.base.reading import read_json
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.run_folder import CONFIG, ENVIRONMENT, OVERRIDES
from resnet_recipes.run_folder.runs import RunRecord, read_run

#: Settings of the machine and the job that do not change the training.
JOB_SETTINGS = ("data.cache", "launch.max_restarts", "launch.max_wall", "launch.price")

#: Settings that may differ between runs of the same configuration: a key, or a section.
VARYING_SETTINGS = (
    "seed",
    "about",
    "published",
    "run.",
    "log.",
    "checkpoint.",
    "evaluation.interval",
    *JOB_SETTINGS,
)

#: Settings that describe or place a run, and do not change its training.
_DESCRIPTIONS = ("about", "published", "run.name", "run.root")

#: Settings in a label; more follow if labels would be equal.
_USUAL_LABEL_SETTINGS = 4


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ only in seeds, folds and `VARYING_SETTINGS`."""

    runs: tuple[RunRecord, ...]
    settings: dict[str, str]  # settings, except those that may differ

    @property
    def top1(self) -> tuple[float, ...]:
        """Accuracies of the finished runs, in percent."""
        return self._list_finished("top1_percent")

    @property
    def noise(self) -> float | None:
        """Standard deviation of the accuracy over seeds; None below two finished runs."""
        return stdev(self.top1) if len(self.top1) > 1 else None

    def mean(self, field: str) -> float | None:
        """Return the mean of a field over the finished runs with a value, or None."""
        values = self._list_finished(field)
        return mean(values) if values else None

    def _list_finished(self, field: str) -> tuple[float, ...]:
        values = (getattr(run, field) for run in self.runs if run.state == "finished")
        return tuple(value for value in values if value is not None)


def read_settings(folder: Path) -> dict[str, str]:
    """Return the settings in a run's recipe with dotted keys, as text.

    Raises NotReadyError if its recipe is not readable.
    """
    return format_settings(strict_yaml.load_frozen(folder / CONFIG).tree)


def format_settings(tree: dict[str, Any]) -> dict[str, str]:
    """Return nested settings as text with dotted keys.

    A method without settings is "on", and an empty value is "-".
    """
    return {key: _format_value(value) for key, value in flatten(tree).items()}


def _format_value(value: object) -> str:
    if value == {}:
        return "on"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value in ("", None) else str(value)


def read_machine(folder: Path) -> dict[str, str]:
    """Return versions and machine of a run, with dotted keys; empty if not recorded."""
    environment = read_json(folder / ENVIRONMENT, may_be_absent=True)
    return format_settings(
        {key: environment[key] for key in ("python", "packages", "machine") if key in environment}
    )


def find_differences(
    settings_by_run: Sequence[dict[str, str]], omitted: Container[str] = ()
) -> dict[str, list[str]]:
    """Return the keys that differ, with the values of all runs; "-" for missing keys.

    Omits names, places and descriptions, and the keys in `omitted`.
    """
    keys = dict.fromkeys(key for settings in settings_by_run for key in settings)
    rows = {key: [settings.get(key, "-") for settings in settings_by_run] for key in keys}
    return {
        key: values
        for key, values in rows.items()
        if len(set(values)) > 1 and key not in _DESCRIPTIONS and key not in omitted
    }


def group_seeds(runs: Iterable[RunRecord]) -> list[SeedGroup]:
    """Group the runs that differ only in seeds, folds and `VARYING_SETTINGS`, in order."""
    groups: dict[tuple[tuple[str, str], ...], list[RunRecord]] = {}
    gpus: dict[str, str] = {}  # "auto" and a number are equal on the same devices
    for run in runs:
        settings = read_settings(run.folder)
        if "launch.gpus" in settings:
            settings["launch.gpus"] = gpus.setdefault(run.devices, settings["launch.gpus"])
        if parts := settings.get("data.fold", "").partition("/")[2]:
            settings["data.fold"] = f"of {parts}"
        key = sorted(item for item in settings.items() if not item[0].startswith(VARYING_SETTINGS))
        groups.setdefault(tuple(key), []).append(run)
    return [SeedGroup(tuple(group), dict(key)) for key, group in groups.items()]


def make_labels(groups: Sequence[SeedGroup]) -> list[str]:
    """Label each group with its recipe, if there are several, and the settings that differ.

    The duration is omitted, and so are later settings that do not distinguish the group.
    """
    of_recipe: dict[str, list[dict[str, str]]] = {}
    for group in groups:
        of_recipe.setdefault(group.runs[0].recipe, []).append(group.settings)
    own = [[*dict.fromkeys(_find_own_settings(group, of_recipe))] for group in groups]
    labels = []
    for group, parts in zip(groups, own, strict=True):
        shown = parts[:_USUAL_LABEL_SETTINGS]
        for other in own:
            if {*shown} <= {*other}:
                shown += [part for part in parts if part not in other][:1]
        if len(parts) > len(shown):
            shown.append(f"{len(parts) - len(shown)} more")
        if len(of_recipe) > 1 or not parts:
            shown.insert(0, group.runs[0].recipe)
        labels.append(", ".join(shown))
    return labels


def label_runs(groups: Iterable[SeedGroup], labels: Iterable[str]) -> dict[str, RunRecord]:
    """Return the runs by label: their name, or their folder if several runs have this name.

    The label of one of several groups, and the seed of one of several runs, follow in parentheses.
    """
    pairs = list(zip(groups, labels, strict=True))
    counts = Counter(run.name for group, _ in pairs for run in group.runs)
    runs_by_label: dict[str, RunRecord] = {}
    for group, group_label in pairs:
        for run in group.runs:
            facts = [group_label] if len(pairs) > 1 else []
            if len(group.runs) > 1:
                facts.append(f"seed {read_settings(run.folder).get('seed')}")
            label = str(run.folder) if counts[run.name] > 1 else run.name
            runs_by_label[f"{label} ({', '.join(facts)})" if facts else label] = run
    return runs_by_label


def _find_own_settings(
    group: SeedGroup, of_recipe: dict[str, list[dict[str, str]]]
) -> Iterator[str]:
    """Yield the settings of a group that differ within its recipe, those with short names first.

    "lr 0.1", "data.eval_size 36", "mixup.alpha 0.2", "no mixup".
    """
    settings = group.settings
    differences = find_differences(of_recipe[group.runs[0].recipe])
    for key in sorted(differences, key=lambda key: find_short_name(key) == key):
        short = find_short_name(key).removesuffix(".name").removeprefix("methods.")
        if key in settings and key not in duration.SETTINGS:
            yield f"{short} {_shorten(settings[key], {*differences[key]})}"
        elif key.startswith("methods.") and key not in settings:
            yield f"no {short.partition('.')[0]}"


def _shorten(value: str, values: Collection[str]) -> str:
    """Return the last parts of a path that the other values do not end with."""
    parts = value.split("/")
    ends = ["/".join(parts[-count:]) for count in range(1, len(parts))]
    return next((e for e in ends if sum(f"/{v}".endswith(f"/{e}") for v in values) == 1), value)


def read_all(folders: Iterable[Path]) -> list[RunRecord]:
    """Read run folders. Raises NotReadyError, which names all folders without a readable run."""

    def read(folder: Path) -> list[RunRecord]:
        run = check_settings_file(require_run(folder))
        if run.state == "unreadable":
            raise NotReadyError.at(folder, Statement(run.reason), Command("resnet-recipes runs"))
        return [run]

    return collect(read, folders)


def require_run(folder: Path) -> RunRecord:
    """Read a run folder. Raises NotReadyError for any other folder or file."""
    if run := read_run(folder):
        return run
    fix = Command("resnet-recipes runs")
    if any(folder.glob(f"*/{OVERRIDES}")):
        fix = Command.of(*fix.split(), str(folder))
        raise NotReadyError.at(folder, "is a folder of runs, not a run", fix)
    raise NotReadyError.at(folder, "is not a run folder", fix)


def check_settings_file(run: RunRecord) -> RunRecord:
    """Return a run, whose state is "unreadable" if its recipe is."""
    try:
        if run.state != "unreadable":
            read_settings(run.folder)
    except NotReadyError as error:
        reason = error.problems[0].about(CONFIG)
        return RunRecord(folder=run.folder, state="unreadable", reason=reason)
    return run
