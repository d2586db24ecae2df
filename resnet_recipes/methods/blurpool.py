"""Low-pass filters before everything that drops pixels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resnet_recipes.errors import Problem
from resnet_recipes.methods.base import Method
from resnet_recipes.methods.surgery import adopt


def blur(x: Tensor, stride: int | tuple[int, int] = 1) -> Tensor:
    """Filter [N, C, H, W] with the 3x3 binomial kernel [1, 2, 1] x [1, 2, 1] / 16, zero-padded by 1, channel by channel."""
    return _by_convolution(x, stride) if x.device.type == "cpu" else _by_averages(x, stride)


def _by_averages(x: Tensor, stride: int | tuple[int, int]) -> Tensor:
    """Blur with two averages of 2x2, which are that kernel exactly. GPUs have no fast depthwise convolution for channels_last."""
    return F.avg_pool2d(F.avg_pool2d(x, 2, stride=1, padding=1), 2, stride=stride)


def _by_convolution(x: Tensor, stride: int | tuple[int, int]) -> Tensor:
    """Blur with a depthwise convolution, which CPUs run three times faster than the averages."""
    line = torch.tensor([1.0, 2.0, 1.0], dtype=x.dtype, device=x.device)
    kernel = (line.view(3, 1) * line / 16).expand(x.shape[1], 1, 3, 3)
    return F.conv2d(x, kernel, stride=stride, padding=1, groups=x.shape[1])


class BlurConv2d(nn.Conv2d):
    """A strided convolution of a blurred input."""

    def forward(self, x: Tensor) -> Tensor:
        if self.kernel_size == (1, 1) and self.padding == (0, 0):
            # A 1x1 convolution mixes channels only, so it can follow the stride instead of making it: the same numbers, less blur.
            return F.conv2d(blur(x, self.stride), self.weight, self.bias, groups=self.groups)
        return super().forward(blur(x))


class ConvBlur2d(nn.Conv2d):
    """A convolution at full resolution, blurred before the stride."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.conv2d(x, self.weight, self.bias, 1, self.padding, self.dilation, self.groups)
        return blur(y, self.stride)


class BlurMaxPool2d(nn.MaxPool2d):
    """A maximum at full resolution, blurred before the stride."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(x, self.kernel_size, 1, self.padding, self.dilation, self.ceil_mode)
        return blur(y, self.stride)


@dataclass
class BlurPool(Method):
    """Blur before every stride, so that dropped pixels do not alias (Zhang, 2019, arXiv:1904.11486).

    Strided convolutions of at least `min_channels` input channels and all max-pools are changed: in ResNet-50 six
    convolutions and one pool, the stem's convolution not being among them. Parameters and state-dict keys stay
    torchvision's, but the blur is part of the network: the weights need it at evaluation, too. `blur_first` blurs the
    input and leaves the stride to the convolution; without it the convolution runs at full resolution, as in the paper,
    at four times its work.
    """

    name: ClassVar[str] = "blurpool"
    cost: ClassVar[str] = (
        "memory traffic; on an RTX 3090, timm's resnetblur50 is 15 % slower than its resnet50, 25 % with "
        "channels_last, blurring by depthwise convolution (timm, results/benchmark-*.csv), which is not used here on "
        "a GPU."
    )
    gain: ClassVar[str] = (
        "+0.5 to 1 points on ImageNet (Zhang, 2019); `blur_first: false` adds 0.1 for another 10 % of time (Composer, "
        "method card)."
    )
    hurts: ClassVar[str] = "images where single pixels carry meaning."
    replace_convs: bool = True          # blur strided convolutions
    replace_maxpools: bool = True       # blur max-pools
    blur_first: bool = True             # blur the input of a convolution, not its output
    min_channels: int = 16              # input channels below which a convolution stays as it is

    def problems(self) -> Iterator[Problem]:
        if self.min_channels < 1:
            yield Problem("min_channels", self.min_channels, "must be at least 1")
        if not self.replace_convs and not self.replace_maxpools:
            yield Problem("replace_convs", False, "leaves nothing to blur, as replace_maxpools is false, too", "~methods.blurpool")

    def modify_model(self, model: nn.Module) -> None:
        for module in model.modules():
            if type(module) is nn.Conv2d and self.replace_convs:
                if max(module.stride) > 1 and module.in_channels >= self.min_channels:
                    adopt(module, BlurConv2d if self.blur_first else ConvBlur2d)
            elif type(module) is nn.MaxPool2d and self.replace_maxpools:
                adopt(module, BlurMaxPool2d)
