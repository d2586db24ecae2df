"""ResNets that train in milliseconds; tests of runs use them in place of torchvision ResNets."""

from collections.abc import Sequence

from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet


def build_resnet(blocks: Sequence[int], divisor: int, num_classes: int) -> ResNet:
    """Return a ResNet with these blocks per stage, and fewer channels after its stem."""

    class Narrow(ResNet):
        def _make_layer(self, block: type, planes: int, blocks: int, **options: int) -> nn.Module:
            if not blocks:
                return nn.Sequential()
            return super()._make_layer(block, planes // divisor, blocks, **options)

    model = Narrow(BasicBlock, blocks, num_classes)
    model.__class__ = ResNet  # only the stem of this class is fused
    model.fc = nn.Linear(model.inplanes, num_classes)
    return model


def build_narrow_resnet18(num_classes: int) -> ResNet:
    """Return a ResNet-18 with a sixtieth of the parameters."""
    return build_resnet([2, 2, 2, 2], 8, num_classes)


def build_shallow_resnet18(num_classes: int) -> ResNet:
    """Return a ResNet-18 with two narrow blocks, the second of which halves the height and width.

    The number of layers determines the time of a step, and even more that of a compilation.
    """
    return build_resnet([1, 1, 0, 0], 4, num_classes)
