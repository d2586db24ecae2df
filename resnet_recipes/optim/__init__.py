"""Every optimizer: one tuple serves as registry and schema.

`optimizer.name` in a recipe chooses one.
"""

from typing import Union

from resnet_recipes.optim.adamw import AdamW
from resnet_recipes.optim.base import OptimizerSettings
from resnet_recipes.optim.decoupled_sgdw import DecoupledSGDW
from resnet_recipes.optim.lamb import LAMB
from resnet_recipes.optim.lars import LARS
from resnet_recipes.optim.sgd import SGD

#: The first is the default.
OPTIMIZERS: tuple[type[OptimizerSettings], ...] = (DecoupledSGDW, SGD, LAMB, LARS, AdamW)

#: The type of the `optimizer` section.
AnyOptimizer = Union[OPTIMIZERS]  # noqa: UP007
