"""The base class of optimizer settings in a recipe: a dataclass that builds a torch optimizer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from resnet_recipes.backbones import classifier
from resnet_recipes.base.errors import Problem
from resnet_recipes.base.limits import BelowOne, Bounds, OneOf, Positive
from resnet_recipes.base.section import Section

_NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    *(nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm),
)

#: For each value of `no_decay`, a test of whether a parameter is exempt, given its module, full
#: name and value.
POLICIES: dict[str, Callable[[nn.Module, str, nn.Parameter], bool]] = {
    "none": lambda module, name, parameter: False,
    # not ResNet's downsample.1, which decays
    "bn_in_name": lambda module, name, parameter: "bn" in name,
    "one_dimensional": lambda module, name, parameter: parameter.ndim <= 1,
    "norm_layers": lambda module, name, parameter: isinstance(module, _NORMS),
}

_HEAD_ALONE = "model.freeze=backbone"


@dataclass
class OptimizerSettings(Section):
    """The settings of one optimizer.

    Subclasses are dataclasses: their fields are the schema of a recipe's `optimizer`.

    A step takes a few passes over all parameters and never waits for the device. Under a GradScaler
    it leaves everything unchanged if the gradient overflows.
    """

    _place: ClassVar[str] = "optimizer."
    cost: ClassVar[str]
    gain: ClassVar[str]
    avoid_when: ClassVar[str]
    state_copies: ClassVar[int] = 1  # values that it keeps for each weight
    scratch_copies: ClassVar[int] = 0  # more of them, which no checkpoint needs
    usual_rate: ClassVar[float] = 2.048  # peak, for a batch of 2048
    rate_power: ClassVar[float] = 1.0  # with which power of the batch its peak rate grows

    name: str = ""  # which optimizer
    # peak learning rate, for the global batch
    lr: Annotated[float, Bounds(above=0, below=10_000, said="positive and below 10000")] = 0.1
    weight_decay: BelowOne = 0.0  # strength of the decay
    # exempt from decay: none | bn_in_name | one_dimensional | norm_layers
    no_decay: Annotated[str, OneOf(*POLICIES)] = "none"
    clip_norm: Positive | None = None  # largest L2 norm of the whole gradient; null: no clipping
    # factor on the rate of all but the classifier, above 0 and at most 1
    backbone_rate: Annotated[float, Bounds(above=0, most=1, fix=_HEAD_ALONE)] = 1.0

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.name != type(self).name:
            yield Problem("name", self.name, f"must be {type(self).name} for these settings")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return a torch optimizer for `model`'s trainable parameters.

        A schedule sets every group's "lr" to the step's rate times the group's "rate".
        """
        raise NotImplementedError

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Return torch's parameter groups.

        What decays, then what `no_decay` exempts, each in the model's order.

        If backbone and classifier have different rates, each is split into two groups; "rate" is
        the factor on the learning rate.
        """
        spares, rates = POLICIES[self.no_decay], dict.fromkeys((self.backbone_rate, 1.0))
        groups: dict[tuple[bool, float], dict[str, Any]] = {
            (decays, rate): {
                "params": [],
                "weight_decay": self.weight_decay if decays else 0.0,
                "rate": rate,
            }
            for decays in (True, False)
            for rate in rates
        }
        head = classifier(model)
        for module_name, module in model.named_modules():
            rate = 1.0 if module_name == head else self.backbone_rate
            for name, parameter in module.named_parameters(module_name, recurse=False):
                if parameter.requires_grad:
                    groups[not spares(module, name, parameter), rate]["params"].append(parameter)
        return [group for group in groups.values() if group["params"]]

    def text(self) -> str:
        """Return the name and settings in one line, without settings that are off."""
        shared = [item.name for item in fields(OptimizerSettings)]
        names = [item.name for item in fields(self) if item.name not in shared]
        names += ["weight_decay", "no_decay", "clip_norm"]
        if self.backbone_rate != 1:
            names.append("backbone_rate")
        return ", ".join(
            [self.name, *filter(None, (_setting(name, getattr(self, name)) for name in names))]
        )


def _setting(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if value in (None, False, "none"):
        return ""
    if value is True:
        return words
    numbers = value if isinstance(value, tuple | list) else ()
    return f"{words} {' '.join(f'{number:g}' for number in numbers) or value}"


class UnderScaler(torch.optim.Optimizer):
    """An optimizer to which GradScaler shows its scale and overflow flag, instead of waiting.

    The flag is a private part of torch: the protocol of its fused optimizers.
    """

    _step_supports_amp_scaling = True

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the weights; `closure` is not supported."""
        for group in self.param_groups:
            if params := trainable(group):
                self.update(params, group)

    def update(self, params: list[nn.Parameter], group: dict[str, Any]) -> None:
        """Update those weights of a group that have a gradient."""
        raise NotImplementedError


def begin_with_zeros(optimizer: torch.optim.Optimizer, *names: str) -> None:
    """Give each parameter its tensors in the state of an optimizer."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = {name: torch.zeros_like(parameter) for name in names}
            optimizer.state[parameter].update(state)


def shown_by_scaler(optimizer: torch.optim.Optimizer) -> tuple[Tensor | None, Tensor | None]:
    """Return the scale of the gradients, and how many overflows they have, during a step.

    Both are None without a GradScaler; with one, they are attributes of torch's own protocol.
    """
    return getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)


def trainable(group: dict[str, Any]) -> list[nn.Parameter]:
    """Return the parameters of a group that have a gradient."""
    return [parameter for parameter in group["params"] if parameter.grad is not None]
