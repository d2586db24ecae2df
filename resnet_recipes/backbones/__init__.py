"""Networks by name: torchvision's ResNets as in the recipes, and any network of a library."""

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from resnet_recipes.base.architecture import FREEZABLE, LIBRARY, Arguments
from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.base.extras import remedy

#: The parts of a ResNet from the input up, by torchvision's names; `stem` is the first two.
STAGES = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")


#: Arguments that are not the user's, by the libraries of `base.architecture.LIBRARY`.
RESERVED = {
    "torchvision": frozenset({"num_classes", "weights", "weights_backbone", "progress"}),
    "timm": frozenset(
        {"num_classes", "in_chans", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay"}
        | {"checkpoint_path", "cache_dir", "scriptable", "exportable", "no_jit"}
    ),
}


def build(name: str, num_classes: int, arguments: Arguments) -> nn.Module:
    """Return a network as its library builds it, with weights drawn by torch's generator.

    Raises RecipeError, with keys of a recipe, if the library has no such network or argument, and
    NotReadyError if the library is not installed.
    """
    found = LIBRARY.fullmatch(name)
    if not found:
        from resnet_recipes.backbones import resnet

        settings: dict[str, Any] = {**arguments}
        try:
            return resnet.build(name, num_classes, **settings)
        except (TypeError, ValueError, RuntimeError) as error:  # of a stranger's file
            rule = f"{name} cannot be built with these: {first_line(error)}"
            raise RecipeError.of("model.args", json.dumps(arguments), rule) from None
    library, short = found.groups()
    require(name)
    rule = "cannot be set here: this program sets it from the recipe"
    own = sorted(RESERVED[library] & arguments.keys())
    RecipeError.refuse(Problem(f"model.args.{key}", None, rule) for key in own)
    try:
        return created(library, short, num_classes=num_classes, **arguments)
    except Exception as error:  # whatever a library raises for arguments that it cannot use
        rule = f"{library} cannot build {short} with these: {first_line(error)}"
        raise RecipeError.of("model.args", json.dumps(arguments), rule) from None


def created(library: str, name: str, **arguments: Any) -> nn.Module:
    """Return a network of a library, with weights as it draws them."""
    if library == "timm":
        import timm

        return timm.create_model(name, pretrained=False, **arguments)
    import torchvision

    return getattr(torchvision.models, name)(**arguments)


def require(name: str) -> None:
    """Raise RecipeError if a network's library has none of this name.

    NotReadyError if the library is not installed.
    """
    if not (found := LIBRARY.fullmatch(name)):
        return
    library, short = found.groups()
    if not find_spec(library):
        rule, fix = f"needs {library}, which is not installed", remedy(library)
        raise NotReadyError.of("model.name", name, rule, fix)
    if short not in (known := _names(library)):
        like = [one for one in known if one.startswith(f"{short}_")]
        like = like or get_close_matches(short, known, n=3)
        near = [f"model.name={library}:{one}" for one in sorted(like, key=len)[:3]]
        rule = f"{library} has no such network"
        raise RecipeError.of("model.name", name, rule, "\n    ".join(near))


def _names(library: str) -> list[str]:
    """Return the networks of a library."""
    if library == "timm":
        import timm

        return timm.list_models()
    from torchvision import models

    return models.list_models(module=models)


def structure(name: str, num_classes: int, arguments: Arguments) -> nn.Module:
    """Return a network without values: it computes shapes and no numbers. Raises as `build`."""
    with _Shapes():
        return build(name, num_classes, arguments).to("meta")


#: What makes weights and images to try them on; networks read numbers from other tensors.
_MAKERS = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn})


class _Shapes(TorchFunctionMode):
    """Weights have no values; torch.device("meta") would also take those of widths and depths."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch."""
        place = {"device": "meta"} if function in _MAKERS else {}
        return function(*args, **{**(kwargs or {}), **place})


def classifier(model: nn.Module) -> str:
    """Return the name of the last linear layer or convolution, which computes the logits."""
    return [
        name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)
    ][-1]


def frozen_by(model: nn.Module, up_to: str) -> Callable[[str], bool]:
    """Return whether `model.freeze` freezes a module or weight, given its full name."""
    if up_to == "backbone":
        head = classifier(model)
        return lambda name: name != head and not name.startswith(f"{head}.")
    parts = frozenset(STAGES[: FREEZABLE.index(up_to) + 1] if up_to != "none" else ())
    return lambda name: name.partition(".")[0] in parts


def is_resnet(model: nn.Module) -> bool:
    """Return whether a network is of torchvision's class ResNet, which the recipes are made for."""
    from torchvision.models import ResNet

    return isinstance(model, ResNet)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__


def from_library(name: str) -> str:
    """Return the library of a network, "timm" or "torchvision"."""
    return name.partition(":")[0] if ":" in name else "torchvision"


def facts(model: nn.Module) -> Mapping[str, Any]:
    """Return what timm knows of one of its networks, `pretrained_cfg`; nothing of any other."""
    return getattr(model, "pretrained_cfg", {})
