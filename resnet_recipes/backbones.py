"""Networks by name: torchvision ResNets as in the recipes, and any network of a library."""

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from resnet_recipes.base.errors import Change, Hint, NotReadyError, Problem, RecipeError, Statement
from resnet_recipes.base.extras import suggest_install
from resnet_recipes.base.model_config import FREEZABLE, LIBRARY, NETWORKS, ModelArguments
from resnet_recipes.base.suggestions import find_misspelled
from resnet_recipes.base.text import get_first_line

#: The parts of a ResNet from the input up, by torchvision name; `stem` is the first two.
STAGES = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")


#: Arguments that users cannot set, by library.
RESERVED_ARGUMENTS = {
    "torchvision": frozenset({"num_classes", "weights", "weights_backbone", "progress"}),
    "timm": frozenset(
        {"num_classes", "in_chans", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay"}
        | {"checkpoint_path", "cache_dir", "scriptable", "exportable", "no_jit"}
    ),
}


def build(name: str, num_classes: int, arguments: ModelArguments) -> nn.Module:
    """Return a network as its library builds it, initialized with the torch random generator.

    Raises RecipeError, with recipe keys, if the library does not have the network or an argument,
    and NotReadyError if the library is not installed.
    """
    match = LIBRARY.fullmatch(name)
    if not match:
        settings: dict[str, Any] = {**arguments}
        try:
            return build_resnet(name, num_classes, **settings)
        # an untrusted file may contain arguments of any type
        except (TypeError, ValueError, RuntimeError) as error:
            clause: str = Statement(f"{name} cannot be built with these: {get_first_line(error)}")
            raise RecipeError.of("model.args", json.dumps(arguments), clause) from None
    library, short = match.groups()
    require_network(name)
    clause = "cannot be set here: this program sets it from the recipe"
    reserved_names = sorted(RESERVED_ARGUMENTS[library] & arguments.keys())
    RecipeError.raise_if_any(Problem(f"model.args.{key}", None, clause) for key in reserved_names)
    try:
        return create_from_library(library, short, num_classes=num_classes, **arguments)
    except Exception as error:  # libraries may raise any exception for these arguments
        clause = Statement(f"{library} cannot build {short} with these: {get_first_line(error)}")
        raise RecipeError.of("model.args", json.dumps(arguments), clause) from None


def build_resnet(
    name: str,
    num_classes: int,
    small_stem: bool = False,
    width: float = 1.0,
    in_channels: int = 3,
) -> nn.Module:
    """Return a torchvision ResNet, optionally with another stem, width or number of input channels.

    Names and initialization match torchvision. With one input channel, the network takes gray
    images [N, 1, H, W] and averages the channels of others.
    """
    import torchvision
    from torchvision.models.resnet import BasicBlock, Bottleneck

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
        model.register_forward_pre_hook(lambda _, inputs: inputs[0].mean(1, keepdim=True))
    is_deep, depths = NETWORKS[name]
    block = Bottleneck if is_deep else BasicBlock
    for stage, depth in enumerate(depths):
        planes = round(64 * width) << stage
        blocks = []
        for index in range(depth):
            stride = 2 if stage and not index else 1
            outputs = planes * block.expansion
            shortcut = None
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


def create_from_library(library: str, name: str, **arguments: Any) -> nn.Module:
    """Return a library network with its default initialization."""
    if library == "timm":
        import timm

        return timm.create_model(name, pretrained=False, **arguments)
    import torchvision

    return getattr(torchvision.models, name)(**arguments)


def require_network(name: str) -> None:
    """Raise RecipeError if the library of a network does not have it.

    Raises NotReadyError if the library is not installed.
    """
    if not (match := LIBRARY.fullmatch(name)):
        return
    library, short = match.groups()
    if not find_spec(library):
        clause = f"needs {library}, which is not installed"
        fix = suggest_install(library)
        raise NotReadyError.of("model.name", name, clause, fix)
    if short not in (available := list_networks(library)):
        words = sorted(short.split("_"))
        similar = [network for network in available if sorted(network.split("_")) == words]
        similar = similar or [network for network in available if network.startswith(short)]
        if not similar:
            near = find_misspelled(short, available)
            similar = [near] if near else get_close_matches(short, available, n=5)
        nearest = sorted(similar, key=lambda network: (len(network), network))[:3]
        fixes = [Change(f"model.name={library}:{network}") for network in nearest]
        other = "torchvision" if library == "timm" else "timm"
        if find_spec(other) and short in list_networks(other):
            fixes = [Change(f"model.name={other}:{short}")]
        others = Hint(f"choose from {len(available):,} networks, such as {library}:resnet50")
        clause = Statement(f"{library} has no such network")
        raise RecipeError.of("model.name", name, clause, tuple(fixes) or others)


def list_networks(library: str) -> list[str]:
    """Return the networks of a library."""
    if library == "timm":
        import timm

        return timm.list_models()
    from torchvision import models

    return models.list_models(module=models)


def build_structure(name: str, num_classes: int, arguments: ModelArguments) -> nn.Module:
    """Return a network without values, which computes only shapes. Raises like `build`."""
    with _Shapes():
        return build(name, num_classes, arguments).to("meta")


#: Functions that create weights and trial images; networks read numbers from other tensors.
_MAKERS = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn})


class _Shapes(TorchFunctionMode):
    """Creates weights without values; torch.device("meta") would also affect widths and depths."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a torch function."""
        device = {"device": "meta"} if function in _MAKERS else {}
        return function(*args, **{**(kwargs or {}), **device})


def find_classifier(model: nn.Module) -> str:
    """Return the name of the last linear layer or convolution, which computes the logits."""
    return [
        name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)
    ][-1]


def select_frozen(model: nn.Module, up_to: str) -> Callable[[str], bool]:
    """Return a predicate on full names: whether `model.freeze` freezes a module or weight."""
    if up_to == "backbone":
        head = find_classifier(model)
        return lambda name: name != head and not name.startswith(f"{head}.")
    parts = frozenset(STAGES[: FREEZABLE.index(up_to) + 1] if up_to != "none" else ())
    return lambda name: name.partition(".")[0] in parts


def is_resnet(model: nn.Module) -> bool:
    """Return whether a network is a torchvision ResNet, the target of the recipes."""
    from torchvision.models import ResNet

    return isinstance(model, ResNet)


def get_library(name: str) -> str:
    """Return the library of a network, "timm" or "torchvision"."""
    return name.partition(":")[0] if ":" in name else "torchvision"


def get_pretrained_cfg(model: nn.Module) -> Mapping[str, Any]:
    """Return the `pretrained_cfg` of a timm network; empty for any other."""
    return getattr(model, "pretrained_cfg", {})
