"""Drop residual branches at random, example by example."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from resnet_recipes.base.errors import Change, Problem, Statement
from resnet_recipes.base.limits import BelowOne, OneOf
from resnet_recipes.methods.base import Method
from resnet_recipes.methods.module_class import change_class, restore_class


class DropExamplesBatchNorm2d(nn.BatchNorm2d):
    """The last BatchNorm of a residual branch, which drops examples.

    Its output is zero for each example with probability `drop_rate`, but the statistics include
    every example. In evaluation the output is multiplied by 1 - drop_rate instead.
    """

    drop_rate: float

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        if not self.training:
            return y * (1 - self.drop_rate)
        return y * self.sample_keep_factors(x).to(y.dtype).view(-1, 1, 1, 1)

    def sample_keep_factors(self, x: Tensor) -> Tensor:
        """Sample a factor for each example of `x`, float32 [N]: 1 to keep it, 0 to drop it."""
        return torch.empty(len(x), device=x.device).bernoulli_(1 - self.drop_rate)  # one launch


@dataclass
class StochasticDepth(Method):
    """Skip residual branches for random examples (Huang et al., 2016, arXiv:1603.09382).

    The choice is independent for each example and block. Training computes `relu(identity + keep *
    branch)` with keep in {0, 1}, without rescaling. Evaluation computes `relu(identity + (1 - p) *
    branch)`. Block l of L, counted from 0, is skipped with probability p: (l + 1) / L *
    drop_rate ("linear"), l / (L - 1) * drop_rate ("from_zero") or drop_rate ("uniform"). With
    "linear", p is 0.00625 to 0.1 over the 16 blocks of ResNet-50, so 41% of the examples pass
    through all blocks.

    The branch is still computed for the entire batch, and BatchNorm statistics include all of it.
    In weights files, the factor 1 - p is folded into the last BatchNorm of the branch, which gives
    a plain ResNet. Composer samples in the precision of the activations; this implementation
    samples in float32.
    """

    name = "stochastic_depth"
    cost = "one multiplication of each branch's output; skipped branches save no time."
    gain = (
        "+0.4 points at drop_rate 0.1, linear (Composer, method card). Scaling by 1 - p in "
        "evaluation is worth 0.1 points (Composer, pull request 376)."
    )
    avoid_when = "The run is short and needs no more regularization."
    is_random_in_forward = True
    drop_rate: BelowOne = 0.1  # probability of skipping the last block
    # linear: rises from drop_rate / L to drop_rate | from_zero: from 0 | uniform: constant
    distribution: Annotated[str, OneOf("linear", "from_zero", "uniform")] = "linear"

    def rates(self, blocks: int) -> list[float]:
        """Return the drop rate of each block, from the first to the last."""
        if self.distribution == "uniform":
            return [self.drop_rate] * blocks
        first = 0 if self.distribution == "from_zero" else 1
        return [(block + first) / (blocks - 1 + first) * self.drop_rate for block in range(blocks)]

    def modify_model(self, model: nn.Module) -> None:
        blocks = filter(_is_block, model.modules())  # from the first to the last
        norms = [block.bn3 if hasattr(block, "bn3") else block.bn2 for block in blocks]
        for norm, rate in zip(norms, self.rates(len(norms)), strict=True):
            if type(norm) is nn.BatchNorm2d:
                change_class(norm, DropExamplesBatchNorm2d, drop_rate=rate)

    def find_network_problems(self, model: nn.Module) -> Iterator[Problem]:
        parts = {name for module in model.modules() for name in dir(module)}
        if key := next((key for key, keys in _DROP_ATTRIBUTES.items() if keys & parts), ""):
            clause = Statement(
                "this network has its own stochastic depth, which drops entire branches"
            )
            fix = f"'~methods.stochastic_depth' model.args.{key}={self.drop_rate}"
            yield Problem("stochastic_depth", None, clause, fix)
        elif not any(map(_is_block, model.modules())):
            clause = Statement("this network has no residual branches that end in BatchNorm")
            yield Problem("stochastic_depth", None, clause, Change("~methods.stochastic_depth"))


#: Settings of networks with stochastic depth, and the attributes of their modules.
_DROP_ATTRIBUTES = {
    "drop_path_rate": {"drop_path", "drop_path1"},
    "stochastic_depth_prob": {"stochastic_depth"},
}


def _is_block(module: nn.Module) -> bool:
    """Return whether a module is a residual block, named as in torchvision and timm's ResNets."""
    return hasattr(module, "downsample") and hasattr(module, "bn2")


@torch.no_grad()
def fold(model: nn.Module) -> None:
    """Turn `model` in place into a plain ResNet with the same evaluation output.

    1 - p is folded into weight and bias.
    """
    for module in model.modules():
        if isinstance(module, DropExamplesBatchNorm2d):
            module.weight.mul_(1 - module.drop_rate)
            module.bias.mul_(1 - module.drop_rate)
            restore_class(module, nn.BatchNorm2d)
            del module.drop_rate


def fold_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the state of `model` as after `fold`, without changing `model`.

    Unchanged tensors belong to the model and are not copies.
    """
    state = model.state_dict()
    for name, module in model.named_modules():
        if isinstance(module, DropExamplesBatchNorm2d):
            for key in (f"{name}.weight", f"{name}.bias"):
                state[key] = state[key] * (1 - module.drop_rate)
    return state


@torch.no_grad()
def unfold(model: nn.Module) -> None:
    """Undo `fold`: rescale plain ResNet weights in `model` to give the same evaluation output."""
    for module in model.modules():
        if isinstance(module, DropExamplesBatchNorm2d):
            module.weight.div_(1 - module.drop_rate)
            module.bias.div_(1 - module.drop_rate)
