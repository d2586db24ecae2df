"""`resnet-recipes diff A B`: the settings that differ between two recipes or runs."""

from pathlib import Path

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.compare import sides
from resnet_recipes.commands.places import ROOT, found
from resnet_recipes.commands.written import write_csv
from resnet_recipes.measure.comparison import differences, flat
from resnet_recipes.recipe import frozen
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.library import Library
from resnet_recipes.recipe.suggestions import did_you_mean
from resnet_recipes.run_folder.names import CONFIG
from resnet_recipes.run_folder.runs import newest

SILENT = ("name", "about", "published")  # descriptions, which do not affect a run


def run(arguments: Arguments) -> int:
    """Print each setting that differs, with both values."""
    differing = differences([_settings(word, arguments.recipes) for word in arguments.words])
    print(sides("SETTING", arguments.words, differing) if differing else "no setting differs")
    write_csv(
        arguments,
        [
            {"setting": key, **dict(zip(arguments.words, values, strict=True))}
            for key, values in differing
        ],
    )
    return 0


def _settings(word: str, folder: Path | None) -> dict[str, str]:
    """Return every setting of a recipe, or of a run's frozen recipe, with its value as text."""
    name, known = word.removeprefix("recipe="), Library(folder).names()
    run = None if name in known else found("RECIPE|RUN", word)
    if not run and name not in known and not name.endswith((".yaml", ".yml")):
        others = [*known, *(path.name for path in newest(ROOT))]
        fix = did_you_mean(name, others) or "resnet-recipes ls and resnet-recipes runs list them"
        raise RecipeError.of("RECIPE|RUN", name, "no such recipe or run", fix)
    if run and run.is_dir():
        recipe = frozen.read(run / CONFIG)
    else:
        recipe = compose(name, folder=folder, needs_data=False).recipe
    return flat({key: value for key, value in frozen.tree_of(recipe).items() if key not in SILENT})
