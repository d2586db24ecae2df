from resnet_recipes import data as data
from resnet_recipes import methods as methods
from resnet_recipes import optim as optim
from resnet_recipes.errors import RecipeError as RecipeError
from resnet_recipes.library import compose as compose
from resnet_recipes.library import load as load
from resnet_recipes.library import plan as plan
from resnet_recipes.library import train as train

__version__: str
__all__ = ["RecipeError", "compose", "data", "load", "methods", "optim", "plan", "train"]
