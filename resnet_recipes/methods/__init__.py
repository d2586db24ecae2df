"""Every speed-up method: one tuple that is registry, schema and order of composition."""

from dataclasses import field, make_dataclass
from typing import Optional

from resnet_recipes.methods.base import Method
from resnet_recipes.methods.bce_loss import BCELoss
from resnet_recipes.methods.label_smoothing import LabelSmoothing

#: Every method, in the order in which their hooks run. Read it top to bottom: this is what a recipe means.
ORDER: tuple[type[Method], ...] = (
    BCELoss,
    LabelSmoothing,
)

#: The `methods` section of a recipe: a method is on if its key is present.
Methods = make_dataclass("Methods", [(method.name, Optional[method], field(default=None)) for method in ORDER])   # noqa: UP045
