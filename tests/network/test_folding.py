import pytest
import torch
import torchvision
from torch import nn

from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.network.fuse import fold_batchnorm
from tests.jobs.nursery import narrow_resnet18


def narrow_resnet50() -> nn.Module:
    """Return a ResNet with bottlenecks and few parameters."""
    return torchvision.models.resnet.ResNet(
        torchvision.models.resnet.Bottleneck, [1, 1, 1, 1], 4, width_per_group=8
    )


@pytest.mark.parametrize("blur", [None, BlurPool(), BlurPool(blur_first=False)])
@pytest.mark.parametrize("made", [lambda: narrow_resnet18(4), narrow_resnet50])
def test_a_folded_network_gives_the_same_output_without_batchnorm(blur, made):
    torch.manual_seed(0)
    model = made()
    if blur:
        blur.modify_model(model)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for values in (norm.running_mean, norm.bias.data, norm.weight.data):
                values.normal_(0.5, 0.3)
            norm.running_var.uniform_(0.5, 2)
    model.eval()
    folded = fold_batchnorm(model)
    left = sum(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert (left > 0) == bool(blur and not blur.blur_first)
    images = torch.randn(2, 3, 48, 40)
    with torch.no_grad():
        torch.testing.assert_close(folded(images), model(images), rtol=1e-4, atol=1e-4)
