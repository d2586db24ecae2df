"""`resnet-recipes teach NAME data=PATH methods.distill.teacher=T`: store a teacher's outputs."""

from resnet_recipes.base.text import escape_controls
from resnet_recipes.commands.arguments import RECIPES, Arguments, Usage
from resnet_recipes.commands.compose import compose_recipe
from resnet_recipes.commands.printing import say

USAGE = Usage(
    "resnet-recipes teach NAME data=PATH methods.distill.teacher=T [key=value ...]",
    "store a teacher's soft labels, to distill without running the teacher",
    "resnet-recipes teach mild data=D methods.distill.teacher=last",
    RECIPES
    | {
        "--out FILE.safetensors": "the file to write (default labels.safetensors)",
        "--top K": "store the K largest outputs of each image (default 10), or `all`",
        "--cycle N": "store N epochs of full-size crops; runs of any duration cycle through them",
        "--dry-run": "print time and disk space, and store nothing",
    },
    """\
To train, replace methods.distill.teacher=T by methods.distill.labels=FILE and keep the other
settings. Crops depend on the seed, the epoch and the image, so each output belongs to one crop.
To resume, run the same command again.""",
    composes=True,
)


def run(arguments: Arguments) -> int:
    """Print the cost, and write the file unless --dry-run is set."""
    from resnet_recipes.jobs.teach import plan_soft_labels

    flags = arguments.flags
    options = flags.get("--top", "10"), flags.get("--cycle", "0"), flags.get("--out", "labels")
    labels = plan_soft_labels(compose_recipe(arguments), *options, say)
    if "--dry-run" not in arguments:
        print(escape_controls(labels.write(say)))
    return 0
