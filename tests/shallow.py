"""A network for tests that trace, compile or export one, whose time goes by the number of its layers."""

from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet


def shallow_resnet(num_classes: int) -> nn.Module:
    """Return a narrow ResNet with the stem and two blocks of a ResNet-18; the second block halves the map."""
    class Shallow(ResNet):
        def _make_layer(self, block: type, planes: int, *rest: int, **options: int) -> nn.Sequential:
            return super()._make_layer(block, planes // 4, *rest, **options) if planes <= 128 else nn.Sequential()

    model = Shallow(BasicBlock, [1, 1, 1, 1], num_classes)
    model.__class__ = ResNet        # the only class whose stem is fused
    model.fc = nn.Linear(32, num_classes)
    return model
