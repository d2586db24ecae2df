"""`resnet-train --cfg`: the complete recipe of a run, as YAML."""

from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import composed
from resnet_recipes.recipe.frozen import freeze


def run(arguments: Arguments) -> int:
    """Print a recipe that can be read again."""
    print(freeze(composed(arguments, needs_data=False).recipe), end="")
    return 0
