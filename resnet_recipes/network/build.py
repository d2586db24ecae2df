"""Build the network of a recipe for training or evaluation, and cast its weights."""

from collections.abc import Sequence
from itertools import compress

import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck

from resnet_recipes import backbones
from resnet_recipes.base.model_config import ModelConfig
from resnet_recipes.methods.stack import Stack
from resnet_recipes.ops.wrong_gradients import avoid_wrong_gradients
from resnet_recipes.recipe.schema import Recipe

#: Layers that each value of model.init initializes. Other layers keep the library's initialization.
KAIMING: dict[str, tuple[type[nn.Module], ...]] = {
    "kaiming_normal": (nn.Conv2d, nn.Linear),
    "kaiming_convs": (nn.Conv2d,),
    "library": (),
}


def build_network(
    recipe: Recipe, methods: Stack, num_classes: int, device: torch.device
) -> nn.Module:
    """Return the recipe's network on `device`.

    It is initialized from the recipe's seed, changed by the methods, and in the recipe's memory
    format.
    """
    model = build_model(recipe.model, num_classes, recipe.seed)
    # this comes before the move to the device, so that added modules also move
    methods.modify_model(model)
    if device.type == "cpu" or not backbones.is_resnet(model):  # ResNets do not need it on GPUs
        model.forward = avoid_wrong_gradients(model.forward)
    if recipe.precision.channels_last:
        return model.to(device, memory_format=torch.channels_last)
    # the memory format of a convolution follows its input, not its weights
    model.register_forward_pre_hook(lambda _, inputs: inputs[0].contiguous())
    return model.to(device)


def build_model(config: ModelConfig, num_classes: int, seed: int) -> nn.Module:
    """Return the network on the CPU, initialized as in the recipe.

    The torchvision ResNets are "v1.5", with the stride in the 3x3 convolution. The weights depend
    on the seed and may differ between kinds of processors.
    """
    torch.manual_seed(seed)
    model = backbones.build(config.name, num_classes, config.arguments)
    for module in model.modules():
        if isinstance(module, KAIMING[config.init]):
            nn.init.kaiming_normal_(module.weight)  # fan_in; torchvision uses fan_out
        if config.bn_init == "uniform" and isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight)
            nn.init.zeros_(module.bias)
        if config.zero_init_last_bn and isinstance(module, BasicBlock | Bottleneck):
            nn.init.zeros_(
                module.bn3.weight if isinstance(module, Bottleneck) else module.bn2.weight
            )
    if config.weights and config.init == "library" and not backbones.is_resnet(model):
        # Libraries initialize the classifier for their own training. For EfficientNet with 1,000
        # classes, the values are 25 times as large as those of torch, which torchvision's ResNets
        # use.
        model.get_submodule(backbones.find_classifier(model)).reset_parameters()
    return model


def cast_by_stage(model: nn.Module, dtype: torch.dtype) -> None:
    """Make convolutions and linear layers of `model` use weights that are cast stage by stage.

    Autocast takes one launch per weight in every forward pass, and one per gradient in every
    backward pass. Here each stage casts its weights in one launch and their gradients in another.
    The gradients of a stage therefore become ready together, at the end of its backward pass.
    Results, parameters and state-dict keys do not change. Not for compiled models, which fuse the
    casts.
    """
    stages = [params for stage in model.children() if (params := _find_cast_params(stage))]
    model.cast_stages, model.cast_dtype = stages, dtype
    model.register_forward_pre_hook(_put_cast_weights)
    model.register_forward_hook(_remove_cast_weights, always_call=True)


def cast_in_place(model: nn.Module, dtype: torch.dtype) -> None:
    """Cast, in place, the weights of a frozen network that autocast would cast at every call."""
    for layer, name in _find_cast_params(model):
        weight = getattr(layer, name)
        weight.data = weight.data.to(dtype)


def _find_cast_params(stage: nn.Module) -> list[tuple[nn.Module, str]]:
    layers = [module for module in stage.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    return [(layer, name) for layer in layers for name, _ in layer.named_parameters(recurse=False)]


def _put_cast_weights(model: nn.Module, images: tuple[Tensor]) -> None:
    """Set each cast copy as an instance attribute, which takes precedence over the Parameter."""
    if not torch.is_autocast_enabled(images[0].device.type):
        return
    for stage in model.cast_stages:
        cast = _Cast.apply(model.cast_dtype, *(getattr(*entry) for entry in stage))
        for (module, name), weight in zip(stage, cast, strict=True):
            module.__dict__[name] = weight


def _remove_cast_weights(model: nn.Module, *_: object) -> None:
    for stage in model.cast_stages:
        for module, name in stage:
            module.__dict__.pop(name, None)


class _Cast(torch.autograd.Function):
    """Cast tensors in one launch, and their gradients in another."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, dtype: torch.dtype, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.dtype = weights[0].dtype
        return tuple(_cast(weights, dtype))

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        needs_grad = ctx.needs_input_grad[1:]  # frozen weights need no gradient
        cast = iter(_cast([*compress(gradients, needs_grad)], ctx.dtype))
        return None, *(next(cast) if needs else None for needs in needs_grad)


def _cast(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return tensors of `dtype` with the same values, in one launch."""
    cast = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(cast, tensors)
    return cast
