"""Fused operations in a network: its modules call them, and BatchNorm takes in the sum and the ReLU that follow it."""

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock, Bottleneck

from resnet_recipes.methods.surgery import adopt
from resnet_recipes.ops import Operations, batch_norm
from resnet_recipes.ops.blur import Blurring


def fuse(model: nn.Module, operations: Operations) -> None:
    """Make the modules of `model` call `operations`, in place. Parameters and state-dict keys stay as they are.

    Blocks and stem of torchvision's ResNets are changed; other networks keep their own BatchNorm.
    """
    for module in list(model.modules()):
        if isinstance(module, Blurring):
            module.blur = operations.blur
        if operations.batch_norm is batch_norm.plain:
            continue
        if type(module) is ResNet and _is_plain(module.bn1):
            _adopt(module.bn1, operations, relu=True)
            module.relu = nn.Identity()
        elif type(module) in BLOCKS:
            _fuse_block(module, operations)


def _fuse_block(block: BasicBlock | Bottleneck, operations: Operations) -> None:
    """Fuse the BatchNorms of a block; the last may be of another kind, as that of StochasticDepth, and stays."""
    *inner, last = [norm for name, norm in block.named_children() if name.startswith("bn")]
    if all(map(_is_plain, inner)):
        for norm in filter(_is_plain, (*inner, last)):
            _adopt(norm, operations, relu=True)
        for norm in filter(_is_plain, block.downsample or ()):
            _adopt(norm, operations, relu=False)
        adopt(block, BLOCKS[type(block)])


def _is_plain(norm: nn.Module) -> bool:
    return type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats and norm.momentum is not None


def _adopt(norm: nn.BatchNorm2d, operations: Operations, relu: bool) -> None:
    adopt(norm, FusedBatchNorm2d, operation=operations.batch_norm, relu=relu)


class FusedBatchNorm2d(nn.BatchNorm2d):
    """A BatchNorm with the sum and the ReLU that follow it, one operation in training."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if self.training:
            return self.operation(x, self.weight, self.bias, residual, self.running_mean, self.running_var,
                                  self.num_batches_tracked, self.momentum, self.eps, self.relu)
        y = super().forward(x)
        y = y if residual is None else y + residual
        return F.relu(y, inplace=True) if self.relu else y


class FusedBasicBlock(BasicBlock):
    """torchvision's block of two convolutions, each with a BatchNorm that ends in ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        return _sum(self.bn2, self.conv2(self.bn1(self.conv1(x))), identity)


class FusedBottleneck(Bottleneck):
    """torchvision's block of three convolutions, each with a BatchNorm that ends in ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x))))
        identity = x if self.downsample is None else self.downsample(x)
        return _sum(self.bn3, self.conv3(y), identity)


def _sum(norm: nn.Module, y: Tensor, identity: Tensor) -> Tensor:
    """End a block."""
    return norm(y, identity) if isinstance(norm, FusedBatchNorm2d) else F.relu(norm(y) + identity, inplace=True)


BLOCKS = {BasicBlock: FusedBasicBlock, Bottleneck: FusedBottleneck}
