"""Count the floating-point operations that training takes.

A cost that is the same on every machine.
"""

from resnet_recipes.base.architecture import FREEZABLE, NETWORKS, ModelConfig
from resnet_recipes.measure.roofline import Convolution, convolutions
from resnet_recipes.methods.stack import Stack


def per_image(model: ModelConfig, classes: int, side: int, methods: Stack) -> int:
    """Return the operations of one image of `side` pixels, forward and backward.

    Convolutions and the classifier are counted, a multiplication and an addition as two, as
    torch.utils.flop_counter does. What else a network computes, blurs too, is small beside them.
    """
    frozen = FREEZABLE.index(model.freeze)  # the stages that are not trained; 5: all but the head
    total = 0
    for layer in convolutions(model.name, side):
        is_trained = layer.stage >= frozen
        passes_on = layer.stage > 0 and is_trained and not (layer.enters and layer.stage == frozen)
        total += (1 + is_trained + passes_on) * _forward(layer, methods)
    features = 2048 if NETWORKS[model.name][0] else 512
    return total + (3 - (model.freeze == "backbone")) * 2 * features * classes


def _forward(layer: Convolution, methods: Stack) -> int:
    """Return the operations of a forward pass, with the stride that the methods leave."""
    if layer.stride == 1:
        return layer.flops
    return layer._replace(stride=methods.convolution_stride(layer.stride, layer.inputs)).flops
