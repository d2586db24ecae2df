from resnet_recipes import data as data
from resnet_recipes import methods as methods
from resnet_recipes.api import compose as compose
from resnet_recipes.api import estimate as estimate
from resnet_recipes.api import evaluate as evaluate
from resnet_recipes.api import load as load
from resnet_recipes.api import plan as plan
from resnet_recipes.api import predict as predict
from resnet_recipes.api import prepare as prepare
from resnet_recipes.api import teach as teach
from resnet_recipes.api import train as train
from resnet_recipes.base.errors import RecipeError as RecipeError
from resnet_recipes.methods import optimizers as optim

__version__: str
_NEEDS_LINUX: str
__all__ = [
    "RecipeError",
    "compose",
    "data",
    "estimate",
    "evaluate",
    "load",
    "methods",
    "optim",
    "plan",
    "predict",
    "prepare",
    "teach",
    "train",
]
