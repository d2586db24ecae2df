"""The base class of optimizer settings in a recipe: a dataclass that builds a torch optimizer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from resnet_recipes.backbones import find_classifier
from resnet_recipes.base.errors import Change, Problem
from resnet_recipes.base.limits import BelowOne, Bounds, OneOf, Positive
from resnet_recipes.base.section import Section

_NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
    *(nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm),
)

#: For each value of `no_decay`, a predicate: whether a parameter is exempt from decay, given its
#: module, full name and value.
POLICIES: dict[str, Callable[[nn.Module, str, nn.Parameter], bool]] = {
    "none": lambda module, name, parameter: False,
    # downsample.1 of a ResNet does not match, so it decays
    "bn_in_name": lambda module, name, parameter: "bn" in name,
    "one_dimensional": lambda module, name, parameter: parameter.ndim <= 1,
    "norm_layers": lambda module, name, parameter: isinstance(module, _NORMS),
}

_HEAD_ALONE = Change("model.freeze=backbone")


@dataclass
class OptimizerSettings(Section):
    """The settings of one optimizer.

    Subclasses are dataclasses; their fields are the schema of `optimizer` in a recipe.

    A step takes a few passes over all parameters and never waits for the device. Under a GradScaler
    a step changes nothing if the gradient overflows.
    """

    _prefix: ClassVar[str] = "optimizer."
    cost: ClassVar[str]
    gain: ClassVar[str]
    avoid_when: ClassVar[str]
    state_copies: ClassVar[int] = 1  # optimizer state values per weight
    scratch_copies: ClassVar[int] = 0  # further values per weight, not part of checkpoints
    usual_lr: ClassVar[float] = 2.048  # peak learning rate for a batch of 2048
    lr_power: ClassVar[float] = 1.0  # exponent of the batch size in the scaling of the peak lr

    name: str = ""  # the name of a class in OPTIMIZERS
    # peak learning rate, for the global batch
    lr: Annotated[float, Bounds(above=0, below=10_000, text="positive and below 10,000")] = 0.1
    weight_decay: BelowOne = 0.0  # its unit depends on the optimizer
    # parameters without decay: none | bn_in_name | one_dimensional | norm_layers. `bn_in_name`
    # exempts names that contain "bn", so not downsample.1. `one_dimensional` exempts biases and
    # the weights of BatchNorm; `norm_layers` exempts BatchNorm, LayerNorm and similar layers.
    no_decay: Annotated[str, OneOf(*POLICIES)] = "none"
    clip_norm: Positive | None = None  # maximum L2 norm of the full gradient; null: no clipping
    # factor on lr for all layers but the classifier
    backbone_rate: Annotated[float, Bounds(above=0, most=1, fix=_HEAD_ALONE)] = 1.0

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.name != type(self).name:
            yield Problem("name", self.name, f"must be {type(self).name} for these settings")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return a torch optimizer for `model`'s trainable parameters.

        A schedule sets "lr" of each group to the learning rate of the step times "lr_factor" of the
        group.
        """
        raise NotImplementedError

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Return torch parameter groups: first those that decay, then those exempted by `no_decay`.

        Both keep the model's order and are split in two if backbone and classifier use different
        learning rates. "lr_factor" is the factor on the learning rate.
        """
        is_exempt = POLICIES[self.no_decay]
        lr_factors = dict.fromkeys((self.backbone_rate, 1.0))
        groups: dict[tuple[bool, float], dict[str, Any]] = {
            (decays, lr_factor): {
                "params": [],
                "weight_decay": self.weight_decay if decays else 0.0,
                "lr_factor": lr_factor,
            }
            for decays in (True, False)
            for lr_factor in lr_factors
        }
        head = find_classifier(model)
        for module_name, module in model.named_modules():
            lr_factor = 1.0 if module_name == head else self.backbone_rate
            for name, parameter in module.named_parameters(module_name, recurse=False):
                if parameter.requires_grad:
                    decays = not is_exempt(module, name, parameter)
                    groups[decays, lr_factor]["params"].append(parameter)
        return [group for group in groups.values() if group["params"]]

    def text(self) -> str:
        """Return the name and settings in one line, without lr and settings that are off."""
        common = [item.name for item in fields(OptimizerSettings)]
        names = [item.name for item in fields(self) if item.name not in common]
        names += ["weight_decay", "no_decay", "clip_norm"]
        if self.backbone_rate != 1:
            names.append("backbone_rate")
        return ", ".join(
            [
                self.name,
                *filter(None, (_format_setting(name, getattr(self, name)) for name in names)),
            ]
        )


def _format_setting(name: str, value: object) -> str:
    label = name.replace("_", " ")
    if value in (None, False, "none"):
        return ""
    if value is True:
        return label
    numbers = value if isinstance(value, tuple | list) else ()
    return f"{label} {' '.join(f'{number:g}' for number in numbers) or value}"


class ScalerAwareOptimizer(torch.optim.Optimizer):
    """An optimizer that applies GradScaler's scale and overflow flag itself, without a host sync.

    `_step_supports_amp_scaling` is a private attribute: the protocol of fused torch optimizers.
    """

    _step_supports_amp_scaling = True

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the weights; `closure` is not supported."""
        for group in self.param_groups:
            if params := select_with_gradient(group):
                self.update(params, group)

    def update(self, params: list[nn.Parameter], group: dict[str, Any]) -> None:
        """Update the weights in a group that have a gradient."""
        raise NotImplementedError


def fill_state_with_zeros(optimizer: torch.optim.Optimizer, *names: str) -> None:
    """Set these tensors of every parameter in an optimizer's state to zeros."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = {name: torch.zeros_like(parameter) for name in names}
            optimizer.state[parameter].update(state)


class Scaling(NamedTuple):
    """The attributes that a GradScaler sets during a step; None without a GradScaler."""

    scale: Tensor | None  # factor on the gradients
    overflow: Tensor | None  # a number, above 0 if a gradient overflowed


def read_scaling(optimizer: torch.optim.Optimizer) -> Scaling:
    """Return the attributes that a GradScaler sets on an optimizer, a protocol of torch."""
    return Scaling(getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None))


def select_with_gradient(group: dict[str, Any]) -> list[nn.Parameter]:
    """Return the parameters of a group that have a gradient."""
    return [parameter for parameter in group["params"] if parameter.grad is not None]
