"""Whether a network can be written in an export format, and if not, why."""

from collections.abc import Iterator

from resnet_recipes import backbones
from resnet_recipes.base.architecture import NETWORKS
from resnet_recipes.base.errors import Problem
from resnet_recipes.base.extras import lacking
from resnet_recipes.network.export import TARGETS
from resnet_recipes.network.load import Network
from resnet_recipes.recipe.foreign import FORMATS

#: The extra that a target needs, and its packages.
_NEEDS = {"timm": ("timm", "timm"), "onnx": ("export", "onnx", "onnxruntime", "onnxscript")}


def problems(
    network: Network, to: str, folds: bool, preprocesses: bool = False
) -> Iterator[Problem]:
    """Yield why a network cannot be written as `to`.

    `folds` says whether BatchNorm is folded, `preprocesses` whether it has its preprocessing.
    """
    if to not in TARGETS:
        meant = FORMATS.get(to.lower(), (to.lower(),))[0]
        fitting = [
            name
            for name in (meant, "safetensors")
            if meant in TARGETS and not any(problems(network, name, folds, preprocesses))
        ]
        fix = f"--to {fitting[0]}" if fitting else ""
        yield Problem("--to", to, f"must be one of {', '.join(TARGETS)}", fix)
        return
    if preprocesses and not TARGETS[to].use_preprocessed:
        able = " or ".join(name for name, target in TARGETS.items() if target.use_preprocessed)
        yield Problem("--with-preprocessing", None, f"cannot be part of {to}", f"--to {able}")
    graphs = "--to onnx, torchscript or exported_program"
    library = backbones.from_library(network.about.architecture)
    if {to, library} == {"timm", "torchvision"} and ":" in network.about.architecture:
        rule = f"has no network like {network.about.architecture}"
        yield Problem("--to", to, rule, f"--to {library}, or {graphs.removeprefix('--to ')}")
    is_own = bool(network.about.arguments) and network.about.architecture in NETWORKS
    if is_own and not TARGETS[to].takes_any:
        rule = "has no ResNet of this stem, width or number of input channels"
        yield Problem("--to", to, rule, f"--to safetensors, or {graphs.removeprefix('--to ')}")
    if network.about.surgery and not TARGETS[to].takes_any:
        also = (
            "; timm's resnetblur50 blurs in other places and is a different network"
            if to == "timm"
            else ""
        )
        rule = (
            f"does not support {' and '.join(network.about.surgery)}, which is part of this "
            f"network{also}"
        )
        yield Problem("--to", to, rule, f"--to safetensors, or {graphs.removeprefix('--to ')}")
    if folds and to in ("torchvision", "timm", "safetensors"):
        yield Problem(
            "--fold-batchnorm", None, f"removes BatchNorm, which {to}'s own network has", graphs
        )
    if folds and not backbones.is_resnet(network.model):
        rule = f"is for ResNets; {network.about.architecture} orders its layers differently"
        yield Problem("--fold-batchnorm", None, rule, "leave it out")


def missing(to: str) -> Iterator[Problem]:
    """Yield which packages `to` needs that are not installed."""
    return lacking("--to", to, *_NEEDS.get(to, ("",)))
