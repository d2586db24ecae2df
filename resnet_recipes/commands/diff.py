"""`resnet-recipes diff A B`: the settings that differ between two recipes or runs."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from resnet_recipes.base.error_collector import collect
from resnet_recipes.base.errors import Fix, Kind, Problem, RecipeError
from resnet_recipes.base.suggestions import find_closest, find_part
from resnet_recipes.base.text import escape_controls
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.printing import show
from resnet_recipes.command_line.usage import CSV, JSON, RECIPES, RUN_HELP, Usage
from resnet_recipes.commands.compare import format_comparison, restore_epochs
from resnet_recipes.jobs.lookup import LAST, LIST, ROOT, find_run_path
from resnet_recipes.recipe.library import LIST_RECIPES, Library
from resnet_recipes.report.comparison import find_differences, format_settings, require_run
from resnet_recipes.run_folder import CONFIG
from resnet_recipes.run_folder.runs import iterate_newest_runs

USAGE = Usage(
    "resnet-recipes diff RECIPE|RUN RECIPE|RUN",
    "compare the settings of two recipes or runs",
    "resnet-recipes diff mild last",
    RECIPES | CSV | JSON,
    RUN_HELP,
    positional=(2, 2),
    positional_text="two recipes or runs",
)


def check(arguments: Arguments) -> tuple[list[dict[str, str]]]:
    """Return the settings of both. Raises RecipeError if one is neither a recipe nor a run."""
    recipes = Library(arguments.recipes).list_names()
    problems = list[Problem]()
    runs = [path.name for path in iterate_newest_runs(ROOT)]
    names = [*recipes, *runs, *([LAST] if runs else [])]
    for argument in arguments.positional:
        name = argument.removeprefix("recipe=")
        is_file = name.endswith((".yaml", ".yml"))
        if name in recipes or is_file or find_run_path("RECIPE|RUN", argument):
            continue
        leaf = name.rpartition("/")[2]
        fix: Fix = find_closest(leaf, names) or find_part(leaf, names) or (LIST_RECIPES, LIST)
        problem = Problem("RECIPE|RUN", name, "unknown recipe or run", fix, typed=argument)
        problems.append(problem._replace(kind=Kind.UNKNOWN))
    RecipeError.raise_if_any(problems)
    return (collect(partial(_read_settings, arguments.recipes), arguments.positional),)


def run(arguments: Arguments, settings: list[dict[str, str]]) -> int:
    """Print each setting that differs, with both values."""
    names = arguments.positional
    differing = [*find_differences(settings).items()]
    rows = [{"setting": key, **dict(zip(names, values, strict=True))} for key, values in differing]
    first, second = map(escape_controls, names)
    lines = ["no setting differs"]
    if differing:
        table = format_comparison("SETTING", "AB", restore_epochs(differing, settings))
        lines = [f"A  {first}", f"B  {second}", "", *table]
    show(arguments, rows, lines, rows)
    return 0


def _read_settings(folder: Path | None, argument: str) -> Iterator[dict[str, str]]:
    """Yield every setting of a recipe or of a run except its name, as text."""
    name = argument.removeprefix("recipe=")
    run = None if name in Library(folder).list_names() else find_run_path("RECIPE|RUN", argument)
    from resnet_recipes.recipe import frozen_recipe
    from resnet_recipes.recipe.compose import compose

    if run and run.is_dir():
        require_run(run)
        recipe = frozen_recipe.read(run / CONFIG)
    else:
        recipe = compose(str(run or name), folder=folder, needs_data=False).recipe
    settings = format_settings(frozen_recipe.to_tree(recipe))
    del settings["name"]  # the heading of its column
    yield settings
