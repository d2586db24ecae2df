"""`resnet-recipes diff A B`: the settings that differ between two recipes or runs."""

from pathlib import Path

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.suggestions import find_closest
from resnet_recipes.commands.arguments import CSV, JSON, RECIPES, RUN, Arguments, Usage
from resnet_recipes.commands.compare import format_sides
from resnet_recipes.commands.printing import show
from resnet_recipes.jobs.lookup import ROOT, find_place
from resnet_recipes.recipe.library import Library
from resnet_recipes.report.comparison import find_differences, format_settings
from resnet_recipes.run_folder import CONFIG
from resnet_recipes.run_folder.runs import list_newest

USAGE = Usage(
    "resnet-recipes diff RECIPE|RUN RECIPE|RUN",
    "compare the settings of two recipes or runs",
    "resnet-recipes diff mild last",
    RECIPES | CSV | JSON,
    RUN,
    words=(2, 2),
    takes="two recipes or runs",
)

SILENT = ("name", "about", "published")  # descriptions, which do not affect a run


def run(arguments: Arguments) -> int:
    """Print each setting that differs, with both values."""
    words = arguments.words
    settings = [_read_settings(word, arguments.recipes) for word in words]
    differing = [*find_differences(settings).items()]
    rows = [{"setting": key, **dict(zip(words, values, strict=True))} for key, values in differing]
    lines = format_sides("SETTING", words, differing) if differing else ["no setting differs"]
    show(arguments, rows, lines, rows)
    return 0


def _read_settings(word: str, folder: Path | None) -> dict[str, str]:
    """Return every setting of a recipe or of a run, as text."""
    name, recipes = word.removeprefix("recipe="), Library(folder).list_names()
    run = None if name in recipes else find_place("RECIPE|RUN", word)
    if not run and name not in recipes and not name.endswith((".yaml", ".yml")):
        candidates = [*recipes, *(path.name for path in list_newest(ROOT))]
        fix = find_closest(name, candidates) or ("resnet-recipes ls", "resnet-recipes runs")
        raise RecipeError.of("RECIPE|RUN", name, "is not a recipe or a run", fix)
    from resnet_recipes.recipe import frozen
    from resnet_recipes.recipe.compose import compose

    if run and run.is_dir():
        recipe = frozen.read(run / CONFIG)
    else:
        recipe = compose(name, folder=folder, needs_data=False).recipe
    return format_settings(
        {key: value for key, value in frozen.to_tree(recipe).items() if key not in SILENT}
    )
