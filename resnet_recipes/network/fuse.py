"""Replace a network's layers with fused operations.

For training, a BatchNorm is fused with the sum and ReLU that follow it. For inference, it is fused
with the convolution before it.
"""

import copy
from functools import partial
from itertools import chain, pairwise

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock, Bottleneck

from resnet_recipes.methods.blurpool import BlurMaxPool2d, ConvBlur2d
from resnet_recipes.methods.module_class import change_class
from resnet_recipes.methods.stochastic_depth import DropExamplesBatchNorm2d
from resnet_recipes.ops import Operations, batch_norm, max_pool
from resnet_recipes.ops.blur import Blurring
from resnet_recipes.ops.norm import Epilogue, Norm

#: The output of a block, or a pair of identical outputs: for the branch and the sum of the next
#: block.
BlockOutput = Tensor | tuple[Tensor, Tensor]


def fuse(model: nn.Module, operations: Operations) -> None:
    """Make the modules of `model` call `operations`, in place.

    BatchNorm is fused in the stem and blocks of torchvision ResNets, but not in other networks.
    3x3 max-pools and blurs change in every network. Parameters and state-dict keys stay the same.
    """
    for module in list(model.modules()) if operations.batch_norm is not batch_norm.unfused else ():
        if type(module) is ResNet and _is_fusable(module.bn1):
            _fold_stem(module.conv1)
            _fuse_norm(module.bn1, operations, relu=True)
            module.relu = nn.Identity()
            if module.avgpool.output_size == (1, 1):
                change_class(module.avgpool, MeanPool2d)
        elif type(module) in BLOCKS:
            _fuse_block(module, operations)
    for module in model.modules():
        if type(module) is ResNet:
            _pair_blocks(module)
        if isinstance(module, Blurring):
            module.blur = operations.blur
    for module in model.modules() if operations.max_pool is not max_pool.unfused else ():
        if isinstance(module, nn.MaxPool2d) and _is_three_by_three(module):
            _fuse_pool(module, operations)


def _is_three_by_three(pool: nn.MaxPool2d) -> bool:
    """Return whether a pool is 3x3 pixels with padding 1, as in a ResNet."""
    sizes = pool.kernel_size, pool.padding, pool.dilation
    return sizes == (3, 1, 1) and pool.stride in (1, 2) and not pool.ceil_mode


def _fuse_pool(pool: nn.MaxPool2d, operations: Operations) -> None:
    if isinstance(pool, BlurMaxPool2d):
        pool.take_maxima = partial(operations.max_pool, stride=1)
    elif type(pool) is nn.MaxPool2d and not pool.return_indices:
        change_class(pool, FusedMaxPool2d, operation=operations.max_pool)


def _fold_stem(conv: nn.Module) -> None:
    sizes = conv.kernel_size, conv.stride, conv.padding, conv.dilation
    if type(conv) is nn.Conv2d and sizes == ((7, 7), (2, 2), (3, 3), (1, 1)):
        change_class(conv, FoldedConv2d)


def _fuse_block(block: BasicBlock | Bottleneck, operations: Operations) -> None:
    norms = [norm for name, norm in block.named_children() if name.startswith("bn")]
    if all(map(_is_fusable, norms)):
        for norm in norms:
            _fuse_norm(norm, operations, relu=True)
        for norm in filter(_is_fusable, block.downsample or ()):
            _fuse_norm(norm, operations, relu=False)
        change_class(block, BLOCKS[type(block)])


def _pair_blocks(network: ResNet) -> None:
    """Make every fused block that another fused block follows return its output twice."""
    blocks = tuple(BLOCKS.values())
    for block, following in pairwise(
        chain(network.layer1, network.layer2, network.layer3, network.layer4)
    ):
        if isinstance(block, blocks) and isinstance(following, blocks):
            block.returns_pair = True


def _is_fusable(norm: nn.Module) -> bool:
    return (
        type(norm) in NORMS
        and norm.affine
        and norm.track_running_stats
        and norm.momentum is not None
    )


def _fuse_norm(norm: nn.BatchNorm2d, operations: Operations, relu: bool) -> None:
    change_class(norm, NORMS[type(norm)], operation=operations.batch_norm, relu=relu)


class FusedBatchNorm2d(nn.BatchNorm2d):
    """A BatchNorm fused in training with the residual sum and ReLU that follow it."""

    def forward(self, x: Tensor, residual: Tensor | None = None, pair: bool = False) -> BlockOutput:
        epilogue = Epilogue(residual, None, self.relu, pair)
        if self.training:
            return self.operation(x, Norm.of(self), epilogue)
        return batch_norm.apply_epilogue(super().forward(x), epilogue)


class FusedDropExamplesBatchNorm2d(DropExamplesBatchNorm2d):
    """The last BatchNorm of a branch with StochasticDepth, fused with the residual sum and ReLU."""

    def forward(self, x: Tensor, residual: Tensor, pair: bool) -> BlockOutput:
        epilogue = Epilogue(residual, None, self.relu, pair)
        if self.training:
            epilogue = epilogue._replace(keep=self.sample_keep_factors(x))
            return self.operation(x, Norm.of(self), epilogue)
        return batch_norm.apply_epilogue(super().forward(x), epilogue)


class FoldedConv2d(nn.Conv2d):
    """A 7x7 convolution with stride 2, computed on images with 2x2 pixels folded into channels.

    The sums are the same. cuDNN takes half the time on an H200, since three channels fill only part
    of its tiles. A fourth channel of zeros gives 16 folded channels, which avoids another copy in
    cuDNN.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] % 2 or x.shape[3] % 2:
            return super().forward(x)
        weight = F.pad(self.weight, (1, 0, 1, 0, 0, 4 - self.in_channels))
        squares = _split_into_squares(x)
        images, height, width = squares.shape[:3]
        padded = weight.new_zeros(images, height + 3, width + 3, 2, 2, 4)
        padded[:, 2:-1, 2:-1, ..., : self.in_channels] = squares
        return F.conv2d(
            _join_squares(padded), _join_squares(_split_into_squares(weight)), self.bias
        )


def _split_into_squares(x: Tensor) -> Tensor:
    """Return [N, C, H, W] as squares of 2x2 pixels, [N, H/2, W/2, 2, 2, C]."""
    return x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).permute(0, 2, 4, 3, 5, 1)


def _join_squares(squares: Tensor) -> Tensor:
    """Return [N, H, W, 2, 2, C] as channels_last [N, 4 C, H, W]."""
    return squares.flatten(3).permute(0, 3, 1, 2)


class FusedMaxPool2d(nn.MaxPool2d):
    """A 3x3 max-pool with padding 1, as one operation."""

    def forward(self, x: Tensor) -> Tensor:
        return self.operation(x, self.stride)


class MeanPool2d(nn.AdaptiveAvgPool2d):
    """The mean over all pixels; the backward pass takes two launches, versus four in torch."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3), keepdim=True)


class FusedBasicBlock(BasicBlock):
    """The torchvision block of two convolutions, each followed by a BatchNorm fused with ReLU."""

    returns_pair: bool = False  # for separate gradients of the next branch and sum

    def forward(self, x: BlockOutput) -> BlockOutput:
        x, identity = x if isinstance(x, tuple) else (x, x)
        identity = identity if self.downsample is None else self.downsample(identity)
        return _end_block(self, self.bn2, self.conv2(self.bn1(self.conv1(x))), identity)


class FusedBottleneck(Bottleneck):
    """The torchvision block of three convolutions, each followed by a BatchNorm fused with ReLU."""

    returns_pair: bool = False  # see FusedBasicBlock

    def forward(self, x: BlockOutput) -> BlockOutput:
        x, identity = x if isinstance(x, tuple) else (x, x)
        y = self.bn2(self.conv2(self.bn1(self.conv1(x))))
        identity = identity if self.downsample is None else self.downsample(identity)
        return _end_block(self, self.bn3, self.conv3(y), identity)


def _end_block(
    block: FusedBasicBlock | FusedBottleneck,
    norm: nn.BatchNorm2d,
    y: Tensor,
    identity: Tensor,
) -> BlockOutput:
    """Return the output of a block, also if StochasticDepth was folded into nn.BatchNorm2d."""
    if isinstance(norm, tuple(NORMS.values())):
        return norm(y, identity, block.returns_pair)
    return batch_norm.apply_epilogue(norm(y), Epilogue(identity, None, True, block.returns_pair))


BLOCKS = {BasicBlock: FusedBasicBlock, Bottleneck: FusedBottleneck}
NORMS = {nn.BatchNorm2d: FusedBatchNorm2d, DropExamplesBatchNorm2d: FusedDropExamplesBatchNorm2d}


def fold_batchnorm(model: nn.Module) -> nn.Module:
    """Return a copy of a ResNet in evaluation mode with its BatchNorms folded into convolutions.

    The output is the same up to rounding. A convolution followed by a blur keeps its BatchNorm,
    because the zero padding of the blur would change a folded bias.
    """
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        names = [name for name, _ in module.named_children()]
        for conv, norm in pairwise(names):
            first = getattr(module, conv)
            second = getattr(module, norm)
            if (
                isinstance(first, nn.Conv2d)
                and type(second) is nn.BatchNorm2d
                and not isinstance(first, ConvBlur2d)
            ):
                setattr(module, conv, fuse_conv_bn_eval(first, second))
                setattr(module, norm, nn.Identity())
    return model
