"""`resnet-recipes compare RUN RUN ...`: differences between runs, and seed noise."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import chain
from statistics import mean
from string import ascii_uppercase

from resnet_recipes.base.duration import SETTINGS, Duration, parse_fraction
from resnet_recipes.base.errors import Command, RecipeError
from resnet_recipes.base.money import format_amount
from resnet_recipes.base.names import find_short_name
from resnet_recipes.base.text import (
    escape_controls,
    format_count,
    format_minutes,
    format_number,
    wrap_text,
)
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.printing import format_or_dash, format_table, get_width, show
from resnet_recipes.command_line.run_arguments import is_run, read_runs
from resnet_recipes.command_line.usage import CSV, JSON, RUN_HELP, Usage
from resnet_recipes.commands.runs import format_run_epochs, format_run_top1
from resnet_recipes.jobs.lookup import LIST, ROOT, find_run_path
from resnet_recipes.planning.published_results import IMAGENET_IMAGES
from resnet_recipes.recipe.library import Library
from resnet_recipes.report.comparison import (
    JOB_SETTINGS,
    SeedGroup,
    find_differences,
    group_seeds,
    read_machine,
    read_settings,
)
from resnet_recipes.report.paired_difference import PairedDifference, describe_pair
from resnet_recipes.run_folder import CONFIG
from resnet_recipes.run_folder.correct_images import CorrectImages
from resnet_recipes.run_folder.runs import RunRecord, iterate_newest_runs, read_image_facts

USAGE = Usage(
    "resnet-recipes compare RUN RUN ...",
    "compare runs and check whether seed noise explains the difference",
    "resnet-recipes compare baseline last",
    CSV | JSON,
    RUN_HELP,
)

_NOT_COMPARABLE = "Not comparable: the runs were evaluated on different images."
_NO_NOISE = "There is only one run of each, so seed noise is unknown. Train more seeds:"

SettingRows = list[tuple[str, list[str]]]  # a key, and its value in each run


def check(arguments: Arguments) -> tuple[list[RunRecord]]:
    """Return the runs, each once. Raises RecipeError if they are not at least two."""
    names = arguments.positional
    others = [name for name in names if not find_run_path("RUN", name)]
    if others and {*others} <= {*Library().list_names()}:
        fix = Command.of("resnet-recipes", "diff", *names[:2])
        clause = "is a recipe, not a run" if len(others) == 1 else "are recipes, not runs"
        raise RecipeError.of("RUN", " ".join(others), clause, fix)
    folder = find_run_path("RUN", names[0]) if len(names) == 1 else None
    in_folder = [*iterate_newest_runs(folder)] if folder and not is_run(names[0]) else []
    distinct = {run.folder.resolve(): run for run in read_runs([] if in_folder else names)}
    if len(distinct) < 2:
        clause = "needs at least two different runs"
        typed = in_folder or [run.folder for run in distinct.values()]
        near = map(iterate_newest_runs, (*(path.parent for path in typed[:1]), ROOT))
        pair = [*{path.resolve(): str(path) for path in chain(typed, *near)}.values()][:2]
        fix = Command.of(*USAGE.command, *pair) if len(pair) == 2 else LIST
        raise RecipeError.of("COMMAND", shlex.join(["compare", *names]), clause, fix)
    return ([*distinct.values()],)


def run(arguments: Arguments, runs: list[RunRecord]) -> int:
    """Print the differences in settings, machines and results of two or more runs."""
    letters = [ascii_uppercase[i] if i < 26 else str(i + 1) for i in range(len(runs))]
    settings = [read_settings(run.folder) for run in runs]
    tables = {
        # the results name the devices
        "settings": [*find_differences(settings, (*JOB_SETTINGS, "launch.gpus")).items()],
        "machine": [*find_differences([read_machine(run.folder) for run in runs]).items()],
        "results": _collect_results(runs),
    }
    groups = group_seeds(runs)
    letters_by_run = dict(zip(runs, letters, strict=True))
    differences = dict(_compare_groups(letters_by_run, groups))
    values = {
        "runs": [run.as_dict() for run in runs],
        "settings": dict(tables["settings"]),
        "machine": dict(tables["machine"]),
        "groups": [
            {
                "runs": [run.name for run in group.runs],
                "mean_top1_percent": group.mean("top1_percent"),
                "noise": group.noise,
                "minutes": group.mean("minutes"),
            }
            for group in groups
        ],
        "pairs": [
            {"runs": pair, **difference._asdict(), "interval": difference.interval}
            for pair, difference in differences.items()
        ],
    }
    folders = ("folder", [str(run.folder) for run in runs])
    rows = [
        {"kind": kind, "name": name, **dict(zip(letters, row_values, strict=True))}
        for kind, rows_of_kind in {"run": [folders], **tables}.items()
        for name, row_values in rows_of_kind
    ]
    lines = [*_name_runs(letters, runs), ""]
    lines += format_comparison("RESULTS", letters, tables["results"])
    for item in differences.items():
        lines.append("")
        for sentence in describe_pair(*item):
            lines += wrap_text(sentence, get_width())
    unfinished = list(_describe_unfinished(letters, runs))
    if _has_other_images(groups):
        lines += ["", *wrap_text(_NOT_COMPARABLE, get_width())]
    elif not unfinished or any(group.noise is not None for group in groups):
        lines += ["", *_describe_seeds(letters_by_run, groups)]
    if unfinished:
        lines += ["", *unfinished]
    changes = restore_epochs(tables["settings"], settings)
    changes = [row for row in changes if row[0] != "name"]  # the recipe
    for title, differing in (("SETTINGS", changes), ("MACHINE", tables["machine"])):
        table = format_comparison(title, letters, differing)
        lines += ["", *(table if differing else [f"{title}: identical"])]
    show(arguments, values, lines, rows)
    return 0


def _has_other_images(groups: Sequence[SeedGroup]) -> bool:
    """Return whether a group recorded other validation images than the first group."""
    first, *others = [
        {read_image_facts(run.folder).get("eval_digest") for run in group.runs} for group in groups
    ]
    return any(None not in first | other and first.isdisjoint(other) for other in others)


def _name_runs(letters: Sequence[str], runs: Sequence[RunRecord]) -> Iterator[str]:
    folders = [escape_controls(run.folder) for run in runs]
    width = max(map(len, folders))
    for letter, folder, run in zip(letters, folders, runs, strict=True):
        yield f"{letter}  {folder:{width}}  recipe={escape_controls(run.recipe)}"


def _compare_groups(
    letters: dict[RunRecord, str], groups: Sequence[SeedGroup]
) -> Iterator[tuple[str, PairedDifference]]:
    """Yield each pair of the first group with another group on the same validation images."""
    results_by_group = [
        {letters[run]: correct for run in group.runs if (correct := CorrectImages.read(run.folder))}
        for group in groups
    ]
    for results in results_by_group[1:]:
        if difference := PairedDifference.of([*results_by_group[0].values()], [*results.values()]):
            yield f"{', '.join(results_by_group[0])} vs. {', '.join(results)}", difference


def restore_epochs(rows: SettingRows, settings: Sequence[dict[str, str]]) -> SettingRows:
    """Return the rows; durations in epochs, which ssr= scales, are shown as epochs."""
    durations = [values.get("max_duration", "") for values in settings]
    if all(duration.endswith("ep") for duration in durations):
        ratios = [parse_fraction(values.get("scale_schedule_ratio", "1")) for values in settings]
        scaled = map(Duration.scale, map(Duration.parse, durations), ratios)
        epochs = [str(duration).removesuffix("ep") for duration in scaled]
        if len({*epochs}) > 1:
            return [("epochs", epochs), *(row for row in rows if row[0] not in SETTINGS)]
    return rows


def format_comparison(title: str, heads: Sequence[str], rows: SettingRows) -> list[str]:
    """Return a row per key and a column per run; below, rows that are too wide name their runs."""
    rows = [
        (escape_controls(find_short_name(key)), list(map(escape_controls, values)))
        for key, values in rows
    ]
    narrow = list(rows)
    table = [title]
    while narrow and max(map(len, table := _align_rows(title, heads, narrow))) > get_width():
        narrow.remove(max(narrow, key=lambda row: len("".join([row[0], *row[1]]))))
    wide = [_stack(heads, *row) for row in rows if row not in narrow]
    return list(chain(table if narrow else [title], *wide))


def _align_rows(title: str, heads: Sequence[str], rows: SettingRows) -> list[str]:
    return format_table(
        [{title: key, **dict(zip(heads, row_values, strict=True))} for key, row_values in rows]
    )


def _stack(heads: Sequence[str], key: str, values: Sequence[str]) -> list[str]:
    """Return a key, and each value with its runs: in one line, or in several if it is too long."""
    cells = []
    for value in dict.fromkeys(values):
        same = [head for head, run_value in zip(heads, values, strict=True) if run_value == value]
        cells.append(f"{', '.join(same)}: {value}")
    line = "  ".join([key, *cells])
    return [line] if len(line) <= get_width() else [key, *(f"  {cell}" for cell in cells)]


def _collect_results(runs: Sequence[RunRecord]) -> SettingRows:
    facts = [read_image_facts(run.folder) for run in runs]
    clocks = {"training": "minutes"}
    if any(fact.get("train_examples") == IMAGENET_IMAGES for fact in facts):
        # published results use these clocks
        clocks |= {"steady state": "minutes_steady_state", "MLPerf's clock": "minutes_mlperf"}
    clocks |= {"wall time": "wall_minutes"}
    costs = [format_or_dash(run.cost(), format_amount) for run in runs]
    return [
        ("state", [run.state for run in runs]),
        ("epochs", [format_run_epochs(run) for run in runs]),
        ("top-1", [format_run_top1(run) for run in runs]),
        ("PFLOPs", [format_or_dash(run.pflops, format_number) for run in runs]),
        *(
            (clock, [format_or_dash(getattr(run, name), format_minutes) for run in runs])
            for clock, name in clocks.items()
        ),
        *([("cost", costs)] if any(run.cost() is not None for run in runs) else []),
        ("devices", [run.devices for run in runs]),
    ]


def _describe_unfinished(letters: Sequence[str], runs: Sequence[RunRecord]) -> Iterator[str]:
    for letter, run in zip(letters, runs, strict=True):
        if run.state != "finished":
            text = f"{letter} is not finished: {run.state} at {run.progress}."
            yield from wrap_text(text, get_width())
        if run.resumable:
            yield f"  resume: {escape_controls(run.resume)}"


def _describe_seeds(letters: dict[RunRecord, str], groups: Sequence[SeedGroup]) -> Iterator[str]:
    """Yield lines with the accuracy of each group, and how much it varies between seeds."""
    if all(group.noise is None for group in groups):
        yield from wrap_text(_NO_NOISE, get_width())
        for folder in (group.runs[0].folder for group in groups):
            seeds = [seed for seed in "123" if seed != read_settings(folder).get("seed")][:2]
            words = ("resnet-train", "-m", str(folder / CONFIG), f"seed={','.join(seeds)}")
            yield f"  {escape_controls(Command.of(*words))}"
        return
    for group in groups:
        if group.top1:
            noise = f" +- {group.noise:.2f}" if group.noise else ""
            over = "in each of" if group.noise == 0 else "over"
            over += f" {format_count(len(group.top1), 'run')}"
            time = format_or_dash(group.mean("minutes"), format_minutes)
            average = " on average" if len(group.runs) > 1 else ""
            text = f"top-1 {mean(group.top1):.2f}{noise}% {over}, {time} of training{average}"
            names = ", ".join(letters[run] for run in group.runs)
            yield from wrap_text(f"{names}: {text}", get_width())
