"""`resnet-recipes teach NAME data=PATH methods.distill.teacher=T`: store a teacher's outputs."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Command, RecipeError, format_advice
from resnet_recipes.base.text import escape_controls
from resnet_recipes.command_line.arguments import Arguments, drop_arguments, get_value
from resnet_recipes.command_line.printing import say
from resnet_recipes.command_line.recipe_arguments import compose_recipe
from resnet_recipes.command_line.usage import RECIPES, Scope, Usage

USAGE = Usage(
    "resnet-recipes teach NAME data=PATH methods.distill.teacher=T [key=value ...]",
    "store a teacher's soft labels, to distill without running the teacher",
    "resnet-recipes teach mild data=photos methods.distill.teacher=last",
    RECIPES
    | {
        "--out FILE.safetensors": "the file to write (default labels.safetensors)",
        "--top K": "store the K largest outputs of each crop (default 10), or `all`",
        "--cycle N": "store N epochs of full-size crops; runs of any duration cycle through them",
        "--dry-run": "print compute and disk space; store nothing",
    },
    """\
The last line of the output is the command that trains with the labels. Crops depend on the seed,
the epoch and the image, so each output belongs to one crop. To resume, run the same command
again.""",
    settings=Scope.RECIPE,
)


def check(arguments: Arguments) -> tuple[str, str, str]:
    """Return the values of --top, --cycle and --out.

    Raises RecipeError if one of them is wrong, with the problems of the teacher.
    """
    from resnet_recipes.jobs.teach import check_options, plan_soft_labels

    flags = arguments.flags
    options = flags.get("--top", "10"), flags.get("--cycle", "0"), flags.get("--out", "labels")
    errors = ErrorCollector()
    with errors:
        check_options(*options)
    with errors:
        if errors.problems:
            plan_soft_labels(compose_recipe(arguments), *options, say)
    errors.raise_if_any()
    return options


def run(arguments: Arguments, top: str, cycle: str, out: str) -> int:
    """Print the cost; unless --dry-run is set, write the file and print the next command."""
    from resnet_recipes.jobs.teach import plan_soft_labels

    labels = plan_soft_labels(compose_recipe(arguments), top, cycle, out, say)
    if "--dry-run" in arguments:
        return 0
    path = labels.write(say)
    print(escape_controls(path), flush=True)
    if command := _find_training_command(arguments, path):
        say(format_advice(command))
    return 0


def _find_training_command(arguments: Arguments, path: Path) -> str:
    from resnet_recipes.methods import ORDER

    method = next(method for method in ORDER if method.soft_labels_setting)
    teacher = f"methods.{method.name}.{method.network_setting}"
    labels = f"methods.{method.name}.{method.soft_labels_setting}"
    folder = arguments.flags.get("--recipes")
    flags = ["--recipes", folder] if folder else []
    name = get_value(arguments.positional, "recipe")
    words = [*drop_arguments(arguments.positional, "recipe", teacher), f"{labels}={path}"]
    for more in ([], [f"{teacher}="]):  # a teacher in the recipe file is removed
        with suppress(RecipeError):
            compose_recipe(replace(arguments, positional=[f"recipe={name}", *words, *more]))
            return Command.of("resnet-train", name, *words, *more, *flags)
    return ""
