"""Fold each BatchNorm into the convolution before it, for inference."""

import copy
from itertools import pairwise

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from resnet_recipes.methods.blurpool import ConvBlur2d


def fold_batchnorm(model: nn.Module) -> nn.Module:
    """Return a copy of a ResNet in evaluation mode without BatchNorms.

    Less work, the same output up to rounding.

    A convolution followed by a blur keeps its BatchNorm, because the blur's zero padding would
    change a folded bias.
    """
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        names = [name for name, _ in module.named_children()]
        for conv, norm in pairwise(names):
            first, second = getattr(module, conv), getattr(module, norm)
            if (
                isinstance(first, nn.Conv2d)
                and type(second) is nn.BatchNorm2d
                and not isinstance(first, ConvBlur2d)
            ):
                setattr(module, conv, fuse_conv_bn_eval(first, second))
                setattr(module, norm, nn.Identity())
    return model
