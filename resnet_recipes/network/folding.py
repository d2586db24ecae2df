"""A network for inference with each BatchNorm folded into the convolution before it."""

import copy
from itertools import pairwise

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from resnet_recipes.methods.blurpool import ConvBlur2d


def fold_batchnorm(model: nn.Module) -> nn.Module:
    """Return a copy of a ResNet in evaluation mode without its BatchNorms: less work, and the same up to rounding.

    A convolution that is blurred afterwards keeps its BatchNorm: the blur's zero padding would reach the bias.
    """
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        names = [name for name, _ in module.named_children()]
        for conv, norm in pairwise(names):
            first, second = getattr(module, conv), getattr(module, norm)
            if isinstance(first, nn.Conv2d) and type(second) is nn.BatchNorm2d and not isinstance(first, ConvBlur2d):
                setattr(module, conv, fuse_conv_bn_eval(first, second))
                setattr(module, norm, nn.Identity())
    return model
