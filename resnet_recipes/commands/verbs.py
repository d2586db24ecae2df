"""`resnet-recipes`: find the command and run it."""

from collections.abc import Sequence

from resnet_recipes import __version__
from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.commands import (
    bottleneck,
    compare,
    convert,
    cp,
    diff,
    doctor,
    estimate,
    eval,
    export,
    ls,
    measure,
    methods,
    plan,
    predict,
    report,
    runs,
    show,
    slurm,
    validate,
    watch,
)
from resnet_recipes.commands.arguments import row, split
from resnet_recipes.recipe.suggestions import did_you_mean

#: In the order of the help page. Each module has `USAGE` and `run`, and imports heavy packages only
#: when it runs.
VERBS = {
    "ls": ls,
    "show": show,
    "cp": cp,
    "diff": diff,
    "validate": validate,
    "methods": methods,
    "plan": plan,
    "estimate": estimate,
    "measure": measure,
    "bottleneck": bottleneck,
    "runs": runs,
    "watch": watch,
    "compare": compare,
    "report": report,
    "eval": eval,
    "predict": predict,
    "export": export,
    "convert": convert,
    "doctor": doctor,
    "slurm": slurm,
}


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    name, *rest = argv or ["--help"]
    if name in ("--help", "-h"):
        print(_overview(), end="")
        return 0
    if name == "--version":
        print(f"resnet-recipes {__version__}")
        return 0
    if name not in VERBS:
        raise RecipeError(
            [
                Problem(
                    name,
                    None,
                    "unknown command",
                    did_you_mean(name, VERBS) or f"commands: {', '.join(VERBS)}",
                )
            ]
        )
    if {"--help", "-h"} & set(rest):
        print(VERBS[name].USAGE.page(), end="")
        return 0
    return VERBS[name].run(split(rest, VERBS[name].USAGE))


def _overview() -> str:
    usages = [verb.USAGE for verb in VERBS.values()]
    rows = [
        row(usage.line.removeprefix("resnet-recipes "), usage.about, column=27) for usage in usages
    ]
    return "\n".join(
        [
            "resnet-recipes COMMAND ...",
            "",
            *rows,
            "",
            "More about one of them: resnet-recipes COMMAND --help",
            "To train: resnet-train recipe=NAME data=/path/to/images",
            "",
        ]
    )
