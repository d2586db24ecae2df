"""The recipes' ResNets: torchvision's, and with another stem or width."""

import torchvision
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck

from resnet_recipes.base.architecture import NETWORKS


def build(
    name: str,
    num_classes: int,
    small_stem: bool = False,
    width: float = 1.0,
    in_channels: int = 3,
) -> nn.Module:
    """Return torchvision's ResNet, or one with another stem, width or number of input channels.

    Names of weights and their initialisation are torchvision's. With one input channel, it takes
    grey images [N, 1, H, W], and the mean of the channels of others.
    """
    model = getattr(torchvision.models, name)(num_classes=num_classes)
    if (small_stem, width, in_channels) == (False, 1, 3):
        return model
    channels = round(64 * width)
    kernel, stride = (3, 1) if small_stem else (7, 2)
    model.conv1 = nn.Conv2d(in_channels, channels, kernel, stride, kernel // 2, bias=False)
    model.bn1 = nn.BatchNorm2d(channels)
    if small_stem:
        model.maxpool = nn.Identity()
    if in_channels == 1:
        model.register_forward_pre_hook(_as_grey)
    is_deep, depths = NETWORKS[name]
    block = Bottleneck if is_deep else BasicBlock
    for stage, depth in enumerate(depths):
        planes = round(64 * width) << stage
        blocks = []
        for index in range(depth):
            stride = 2 if stage and not index else 1
            outputs, shortcut = planes * block.expansion, None
            if stride > 1 or channels != outputs:
                conv = nn.Conv2d(channels, outputs, 1, stride, bias=False)
                shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))
            blocks.append(block(channels, planes, stride, shortcut))
            channels = outputs
        setattr(model, f"layer{stage + 1}", nn.Sequential(*blocks))
    model.fc = nn.Linear(channels, num_classes)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _as_grey(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    return inputs[0].mean(1, keepdim=True)
