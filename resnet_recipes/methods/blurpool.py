"""Low-pass filters before layers that downsample."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from torch import Tensor, nn

from resnet_recipes.base.errors import Change, Problem, Statement, Value
from resnet_recipes.base.limits import Bounds
from resnet_recipes.base.names import DOCS
from resnet_recipes.methods.base import Method
from resnet_recipes.methods.module_class import change_class
from resnet_recipes.ops.blur import Blurring


class BlurConv2d(nn.Conv2d, Blurring):
    """A strided convolution whose input is blurred first."""

    def forward(self, x: Tensor) -> Tensor:
        if self.kernel_size == (1, 1) and self.padding == (0, 0):
            # A 1x1 convolution mixes channels only, so the blur can take the stride: same result,
            # less work.
            return F.conv2d(self.blur(x, self.stride), self.weight, self.bias, groups=self.groups)
        return super().forward(self.blur(x))


class ConvBlur2d(nn.Conv2d, Blurring):
    """A convolution at full resolution, blurred before the stride."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.conv2d(x, self.weight, self.bias, 1, self.padding, self.dilation, self.groups)
        return self.blur(y, self.stride)


class BlurMaxPool2d(nn.MaxPool2d, Blurring):
    """A max-pool at full resolution, blurred before the stride."""

    def forward(self, x: Tensor) -> Tensor:
        return self.blur(self.take_maxima(x), self.stride)

    def take_maxima(self, x: Tensor) -> Tensor:
        """Return the maxima at full resolution."""
        return F.max_pool2d(x, self.kernel_size, 1, self.padding, self.dilation, self.ceil_mode)


@dataclass
class BlurPool(Method):
    """Blur before downsampling, to avoid aliasing (Zhang, 2019, arXiv:1904.11486).

    The method changes all max pools, and all strided convolutions with at least `min_channels`
    input channels. In ResNet-50, these are one pool and six convolutions, but not the stem.
    Parameters and state-dict keys match torchvision, but the blur is part of the network, so
    evaluation also needs it. `blur_first` blurs the input of a strided convolution. Without it, the
    convolution runs at full resolution. This is closer to the paper, at four times the compute of
    the convolution.
    """

    name = "blurpool"
    cost = (
        "memory traffic: on an H200, 4% of a step for the blurs and 2% for a max pool at full "
        f"resolution ({DOCS}/lab/h200.html). On an RTX 3090, timm's resnetblur50, "
        "which blurs by depthwise convolution, is 15 to 25% slower than its resnet50 (timm, "
        "results/benchmark-*.csv)."
    )
    gain = (
        "+0.5 to 1 points on ImageNet (Zhang, 2019); `blur_first: false` adds 0.1 and takes "
        "another 10% of time (Composer, method card). Measured here: +6.2 (1.4 to 11.0), "
        "settled within its study only, in 8 epochs of Mild on 20 classes of Tiny ImageNet "
        f"({DOCS}/lab/methods.html)."
    )
    avoid_when = "Single pixels of the images matter."
    inference = (
        "costs 1 to 21% more CPU time, for ResNet-50 at 224 px (one and eight images per batch, "
        "with and without channels_last, one thread of an AMD EPYC, 29 November 2026)."
    )
    in_network = True
    blurs = True
    replace_convs: bool = True  # blur strided convolutions
    replace_maxpools: bool = True  # blur max-pools
    blur_first: bool = True  # blur the input of a convolution, not its output
    # convolutions with fewer input channels are not changed
    min_channels: Annotated[int, Bounds(least=1)] = 16

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if not self.replace_convs and not self.replace_maxpools:
            clause = "leaves nothing to blur while replace_maxpools is false"
            yield Problem("replace_convs", False, clause, Value("true"))

    def modify_model(self, model: nn.Module) -> None:
        for module, new_class in self._find_layers(model):
            change_class(module, new_class)

    def find_network_problems(self, model: nn.Module) -> Iterator[Problem]:
        if not any(self._find_layers(model)):
            clause = Statement(
                "this network has no strided convolutions or max-pools that it could blur"
            )
            yield Problem("blurpool", None, clause, Change("~methods.blurpool"))

    def _find_layers(self, model: nn.Module) -> Iterator[tuple[nn.Module, type[nn.Module]]]:
        """Yield each layer to blur, and its new class."""
        for module in model.modules():
            if type(module) is nn.Conv2d and self.replace_convs:
                if max(module.stride) > 1 and module.in_channels >= self.min_channels:
                    yield module, BlurConv2d if self.blur_first else ConvBlur2d
            elif type(module) is nn.MaxPool2d and self.replace_maxpools:
                yield module, BlurMaxPool2d

    def convolution_stride(self, stride: int, inputs: int) -> int:
        is_blurred_after = self.replace_convs and not self.blur_first
        return 1 if is_blurred_after and inputs >= self.min_channels else stride
