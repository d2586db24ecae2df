"""`resnet-recipes export RUN`: write a trained network for another program, and check it."""

from pathlib import Path

from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.trained import named
from resnet_recipes.network import hub
from resnet_recipes.network.export import TARGETS
from resnet_recipes.network.exportable import lacking, problems
from resnet_recipes.report.waiting import Waiting
from resnet_recipes.training.export import IMAGES, export_checked


def run(arguments: Arguments) -> int:
    """Export, compare, and print the largest difference."""
    example, folds = PAGES["export"].example, "--fold-batchnorm" in arguments
    preprocesses = "--with-preprocessing" in arguments
    if absent := [
        Problem(flag, None, "is missing", example)
        for flag in ("--to", "--out")
        if flag not in arguments
    ]:
        raise RecipeError(absent)
    to, out = arguments.flags["--to"], arguments.flags["--out"]
    folder = typed_path("--out", out)
    if folder.suffix in {Path(target.file).suffix for target in TARGETS.values()}:
        rule = "is the name of a folder, with the network and a README.md"
        raise RecipeError.of("--out", out, rule, f"--out {folder.with_suffix('')}")
    if folder.exists():
        rule = "already exists; an export creates a new folder"
        raise RecipeError.of("--out", out, rule, "--out another")
    if push := arguments.flags.get("--push"):
        hub.repository("--push", push)
        if missing := list(hub.lacking()):
            raise NotReadyError(missing)
    trained = named([*arguments.words, "launch.device=cpu"], example).on_device()
    if found := list(problems(trained.network, to, folds, preprocesses)):
        raise RecipeError(found)
    if missing := list(lacking(to)):
        raise NotReadyError(missing)
    if note := TARGETS[to].note:
        say(f"note: {note}")
    say(f"writing {TARGETS[to].file}, then comparing what {to} computes on {IMAGES} images ...")
    with Waiting("comparing") as waiting:
        exported = export_checked(trained, to, folder, folds, preprocesses, waiting)
    print(f"network   {TARGETS[to].file} for {to}, {exported.bytes / 1e6:,.1f} MB")
    if exported.folding is not None:
        print(f"folded    {exported.folding:.2g} by folding BatchNorm")
    print(f"compared  {exported.comparison}")
    print(f"written   {folder}")
    if push:
        say(f"uploading to {push} ...")
        print(f"pushed    {hub.push(folder, push)}")
    return 0
