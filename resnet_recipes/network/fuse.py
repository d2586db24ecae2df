"""Put fused operations into a network.

BatchNorm takes over the residual sum, ReLU and blur that follow it.
"""

from collections.abc import Callable
from itertools import chain, pairwise

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock, Bottleneck

from resnet_recipes.methods.blurpool import BlurConv2d, BlurMaxPool2d
from resnet_recipes.methods.stochastic_depth import DropSamplesBatchNorm2d
from resnet_recipes.methods.surgery import adopt, release
from resnet_recipes.ops import Operations, batch_norm, stem
from resnet_recipes.ops.blur import Blurring
from resnet_recipes.ops.norm import Epilogue, Norm

#: What a block passes on besides its output: nothing, the output again, or the output blurred with
#: stride 2.
NONE, SAME, HALVED = range(3)


def fuse(model: nn.Module, operations: Operations) -> None:
    """Make the modules of `model` call `operations`, in place.

    Changes the stem and blocks of torchvision's ResNets; other networks keep their own BatchNorm.
    Parameters and state-dict keys do not change.
    """
    for module in list(model.modules()) if operations.batch_norm is not batch_norm.plain else ():
        if type(module) is ResNet and _fits(module.bn1):
            _fuse_stem(module, operations)
            if module.avgpool.output_size == (1, 1):
                adopt(module.avgpool, MeanPool2d)
        elif type(module) in BLOCKS:
            _fuse_block(module, operations)
    for module in model.modules():
        if type(module) is ResNet:
            _pair_blocks(module)
        if isinstance(module, Blurring):
            module.blur = operations.blur


def _fuse_stem(network: ResNet, operations: Operations) -> None:
    """Let the first BatchNorm take in the ReLU after it, and a blurred pool after that."""
    _adopt(network.bn1, operations, relu=True)
    network.relu = nn.Identity()
    if operations.stem is not stem.plain and type(network.maxpool) is BlurMaxPool2d:
        adopt(network.bn1, StemBatchNorm2d, stem=operations.stem, pool=network.maxpool)
        network.maxpool = nn.Identity()


def _fuse_block(block: BasicBlock | Bottleneck, operations: Operations) -> None:
    """Fuse a block if all its BatchNorms can be fused."""
    own = [norm for name, norm in block.named_children() if name.startswith("bn")]
    if all(map(_fits, own)):
        for norm in own:
            _adopt(norm, operations, relu=True)
        for norm in filter(_fits, block.downsample or ()):
            _adopt(norm, operations, relu=False)
        adopt(block, BLOCKS[type(block)])
        if isinstance(block, Bottleneck) and type(block.conv2) is BlurConv2d:
            adopt(block.bn1, BlurredBatchNorm2d)
            release(block.conv2)


def _pair_blocks(network: ResNet) -> None:
    """Make every fused block of the four stages, except the last, return a second output.

    That is the same output, or the output blurred with stride 2 if the next block's downsampling
    would do so first.
    """
    blocks = tuple(BLOCKS.values())
    for block, following in pairwise(
        chain(network.layer1, network.layer2, network.layer3, network.layer4)
    ):
        if isinstance(block, blocks) and isinstance(following, blocks):
            block.second = SAME
            shortcut = following.downsample[0] if following.downsample else None
            if type(shortcut) is BlurConv2d and (shortcut.kernel_size, shortcut.stride) == (
                (1, 1),
                (2, 2),
            ):
                block.second = HALVED
                release(shortcut)
                adopt(shortcut, HalvedConv2d)


def _fits(norm: nn.Module) -> bool:
    return (
        type(norm) in NORMS
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
    )


def _adopt(norm: nn.BatchNorm2d, operations: Operations, relu: bool) -> None:
    adopt(norm, NORMS[type(norm)], operation=operations.batch_norm, relu=relu)


class FusedBatchNorm2d(nn.BatchNorm2d, Blurring):
    """A BatchNorm with the residual sum and ReLU that follow it, as one operation in training."""

    def forward(
        self, x: Tensor, residual: Tensor | None = None, second: int = NONE
    ) -> Tensor | tuple[Tensor, Tensor]:
        if self.training:
            return self.operation(x, Norm.of(self), _epilogue(self, residual, second))
        return _finish(self, super().forward(x), residual, second)


class BlurredBatchNorm2d(FusedBatchNorm2d):
    """A BatchNorm with the ReLU and blur that follow it, as one operation in training."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return self.operation(x, Norm.of(self), Epilogue(relu=True, blur=1))
        return self.blur(super().forward(x), 1)


class StemBatchNorm2d(FusedBatchNorm2d):
    """The stem's BatchNorm, its ReLU and the blurred max pool, as one operation in training."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return self.stem(x, Norm.of(self))
        return self.pool(super().forward(x))


class FusedDropSamplesBatchNorm2d(DropSamplesBatchNorm2d, Blurring):
    """The last BatchNorm of a branch with StochasticDepth, with the residual sum and its ReLU."""

    def forward(self, x: Tensor, residual: Tensor, second: int) -> Tensor | tuple[Tensor, Tensor]:
        if self.training:
            epilogue = _epilogue(self, residual, second)._replace(keep=self.draw(x))
            return self.operation(x, Norm.of(self), epilogue)
        return _finish(self, super().forward(x), residual, second)


def _epilogue(norm: nn.BatchNorm2d, residual: Tensor | None, second: int) -> Epilogue:
    """Return what follows a BatchNorm in training.

    With a `second` output, the next block's branch and sum have separate gradients.
    """
    blur = 2 if second == HALVED else 0
    return Epilogue(residual, None, norm.relu, blur, twice=second != NONE)


def _finish(
    norm: nn.BatchNorm2d, y: Tensor, residual: Tensor | None, second: int
) -> Tensor | tuple[Tensor, Tensor]:
    """Do in evaluation what follows a BatchNorm."""
    y = y if residual is None else y + residual
    return _with_second(F.relu(y, inplace=True) if norm.relu else y, second, norm.blur)


def _with_second(
    y: Tensor, second: int, blur: Callable[[Tensor, int], Tensor]
) -> Tensor | tuple[Tensor, Tensor]:
    return (y, blur(y, 2) if second == HALVED else y) if second else y


class HalvedConv2d(nn.Conv2d):
    """A 1x1 convolution without its stride, whose input was already blurred and halved."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, groups=self.groups)


class MeanPool2d(nn.AdaptiveAvgPool2d):
    """The mean over all pixels, with a backward pass of two launches; torch's module needs four."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3), keepdim=True)


class FusedBasicBlock(BasicBlock, Blurring):
    """torchvision's block of two convolutions, each followed by a BatchNorm fused with ReLU."""

    second: int = NONE  # what to return besides the output, for the next block's sum

    def forward(self, x: Tensor | tuple[Tensor, Tensor]) -> Tensor | tuple[Tensor, Tensor]:
        x, identity = x if isinstance(x, tuple) else (x, x)
        identity = identity if self.downsample is None else self.downsample(identity)
        return _end(self, self.bn2, self.conv2(self.bn1(self.conv1(x))), identity)


class FusedBottleneck(Bottleneck, Blurring):
    """torchvision's block of three convolutions, each followed by a BatchNorm fused with ReLU."""

    second: int = NONE  # what to return besides the output, for the next block's sum

    def forward(self, x: Tensor | tuple[Tensor, Tensor]) -> Tensor | tuple[Tensor, Tensor]:
        x, identity = x if isinstance(x, tuple) else (x, x)
        y = self.bn2(self.conv2(self.bn1(self.conv1(x))))
        identity = identity if self.downsample is None else self.downsample(identity)
        return _end(self, self.bn3, self.conv3(y), identity)


def _end(
    block: FusedBasicBlock | FusedBottleneck,
    norm: nn.BatchNorm2d,
    y: Tensor,
    identity: Tensor,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return a block's output, even if its StochasticDepth was folded into a plain BatchNorm."""
    if isinstance(norm, tuple(NORMS.values())):
        return norm(y, identity, block.second)
    return _with_second(F.relu(norm(y) + identity, inplace=True), block.second, block.blur)


BLOCKS = {BasicBlock: FusedBasicBlock, Bottleneck: FusedBottleneck}
NORMS = {nn.BatchNorm2d: FusedBatchNorm2d, DropSamplesBatchNorm2d: FusedDropSamplesBatchNorm2d}
