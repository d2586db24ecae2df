"""All optimizers; the union is both the registry and the schema.

`optimizer.name` in a recipe selects one.
"""

from typing import get_args

from resnet_recipes.methods.optimizers.adamw import AdamW
from resnet_recipes.methods.optimizers.base import OptimizerSettings
from resnet_recipes.methods.optimizers.decoupled_sgdw import DecoupledSGDW
from resnet_recipes.methods.optimizers.lamb import LAMB
from resnet_recipes.methods.optimizers.lars import LARS
from resnet_recipes.methods.optimizers.sgd import SGD

__all__ = ["LAMB", "LARS", "SGD", "AdamW", "DecoupledSGDW", "OptimizerSettings"]

#: The type of the `optimizer` section. The first member is the default.
AnyOptimizer = DecoupledSGDW | SGD | LAMB | LARS | AdamW

OPTIMIZERS: tuple[type[OptimizerSettings], ...] = get_args(AnyOptimizer)
