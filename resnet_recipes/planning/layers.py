"""The layers of torchvision ResNets, and the FLOPs of any network."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

from resnet_recipes.base.model_config import FREEZABLE, NETWORKS, ModelConfig
from resnet_recipes.methods.stack import Stack


class LayerCost(NamedTuple):
    """The compute of one layer for one image."""

    flops: int  # FLOPs of the forward pass
    passes: int  # passes per training step: forward, and one or two backward


class FlopCount(NamedTuple):
    """The compute of a network for one image, independent of the machine.

    Counts convolutions and linear layers, with two operations per multiply-add, like
    torch.utils.flop_counter. Other layers, such as blurs, need little compute.
    """

    forward: int
    training: int  # forward and backward

    @classmethod
    def of(cls, layers: Iterable[LayerCost]) -> Self:
        """Return the sum over layers."""
        costs = list(layers)
        return cls(
            sum(cost.flops for cost in costs), sum(cost.flops * cost.passes for cost in costs)
        )


class Convolution(NamedTuple):
    """A convolution and the BatchNorm that follows it; images are square."""

    inputs: int  # channels
    outputs: int
    kernel: int
    stride: int
    input_size: int  # input height and width, in pixels
    relu: bool = True  # whether its BatchNorm is followed by ReLU
    adds: bool = False  # whether the input of the block is added before the ReLU
    stage: int = 0  # 0: the stem; 1 to 4: layer1 to layer4
    is_first: bool = False  # whether its input is the output of the previous stage

    @property
    def output_size(self) -> int:
        """Output height and width, in pixels."""
        return (self.input_size - 1) // self.stride + 1

    @property
    def input_elements(self) -> int:
        """Number of input elements."""
        return self.inputs * self.input_size**2

    @property
    def output_elements(self) -> int:
        """Number of output elements."""
        return self.outputs * self.output_size**2

    @property
    def flops(self) -> int:
        """FLOPs of the forward pass for one image."""
        return 2 * self.inputs * self.kernel**2 * self.output_elements

    @property
    def weights(self) -> int:
        """Number of weights of the convolution."""
        return self.inputs * self.outputs * self.kernel**2

    def passes(self, frozen: int = 0) -> int:
        """Return the number of passes per training step: forward, and for its two gradients.

        `frozen` is the number of frozen stages, counted from the input.
        """
        is_trained = self.stage >= frozen
        has_gradient = (
            is_trained and self.stage > 0 and not (self.is_first and self.stage == frozen)
        )
        return 1 + is_trained + has_gradient


def iterate_convolutions(model: str, image_size: int) -> Iterator[Convolution]:
    """Yield the convolutions of a torchvision ResNet for images of `image_size` pixels."""
    is_deep, blocks = NETWORKS[model]
    stem = Convolution(3, 64, 7, 2, image_size)
    yield stem
    size = (stem.output_size - 1) // 2 + 1
    channels = 64
    for stage, repeats in enumerate(blocks, 1):
        width = 32 * 2**stage
        outputs = 4 * width if is_deep else width
        for index in range(repeats):
            is_first = not index
            stride = 2 if stage > 1 and is_first else 1
            output_size = (size - 1) // stride + 1
            if is_deep:
                yield Convolution(channels, width, 1, 1, size, stage=stage, is_first=is_first)
                yield Convolution(width, width, 3, stride, size, stage=stage)
                yield Convolution(width, outputs, 1, 1, output_size, adds=True, stage=stage)
            else:
                yield Convolution(channels, width, 3, stride, size, stage=stage, is_first=is_first)
                yield Convolution(width, outputs, 3, 1, output_size, adds=True, stage=stage)
            if stride > 1 or channels != outputs:
                yield Convolution(
                    channels, outputs, 1, stride, size, relu=False, stage=stage, is_first=is_first
                )
            size, channels = output_size, outputs


def count_backbone_weights(model: str, frozen: int = 0) -> int:
    """Return the number of weights of a ResNet, including BatchNorms, without its classifier.

    Omits the first `frozen` stages.
    """
    layers = [layer for layer in iterate_convolutions(model, 224) if layer.stage >= frozen]
    return sum(layer.weights + 2 * layer.outputs for layer in layers)


def count_features(model: str) -> int:
    """Return the number of input features of a ResNet's classifier."""
    return 2048 if NETWORKS[model][0] else 512


def count_flops(model: ModelConfig, classes: int, image_size: int, methods: Stack) -> FlopCount:
    """Return the FLOPs of a ResNet of the recipes for an image of `image_size` pixels."""
    frozen = FREEZABLE.index(model.freeze)  # number of frozen stages; 5: all but the head

    def iterate_costs() -> Iterator[LayerCost]:
        for layer in iterate_convolutions(model.name, image_size):
            stride = layer.stride
            if stride > 1:
                stride = methods.convolution_stride(stride, layer.inputs)
            yield LayerCost(layer._replace(stride=stride).flops, layer.passes(frozen))
        flops = 2 * count_features(model.name) * classes
        yield LayerCost(flops, 3 - (model.freeze == "backbone"))

    return FlopCount.of(iterate_costs())
