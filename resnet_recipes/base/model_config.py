"""The `model` section of a recipe: the network, and its initial weights."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Annotated, Any

from resnet_recipes.base.errors import Change, Hint, Problem, Statement
from resnet_recipes.base.limits import Bounds, OneOf
from resnet_recipes.base.section import Section

#: torchvision ResNets, "v1.5": whether they use bottlenecks, and the number of blocks per stage.
NETWORKS = {
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
    "resnet152": (True, (3, 8, 36, 3)),
}

#: A network from another library, as `library:name`; `backbones` lists each library's networks.
LIBRARY = re.compile(r"(timm|torchvision):([a-z][a-z0-9_]{0,95})")

#: Arguments of a library network: numbers and booleans only, so that an untrusted file cannot name
#: anything to load.
ModelArguments = dict[str, int | float | bool]

#: Where freezing ends, counted from the input; backbone: everything except the classifier.
FREEZABLE = ("none", "stem", "layer1", "layer2", "layer3", "backbone")

#: Settings of the ResNets in recipes, with torchvision values.
_TORCHVISION_VALUES = {"stem": "standard", "width": 1.0, "in_channels": 3}

#: Initialization of other networks: the library initializes them.
_LIBRARY_INIT = {"init": "library", "bn_init": "ones", "zero_init_last_bn": False}

#: Networks that return several outputs in training.
_AUXILIARY = frozenset({"torchvision:googlenet", "torchvision:inception_v3"})

#: Arguments that leave a single output. torchvision warns if `init_weights` is not set.
_SINGLE_OUTPUT: ModelArguments = {"aux_logits": False, "init_weights": True}

_RESNETS = re.compile(r"torchvision:(wide_)?resne(x?)t\w+")


def find_implied_settings(name: str) -> dict[str, Any]:
    """Return the settings that a library network implies, so that recipes can omit them."""
    if not LIBRARY.fullmatch(name) or _RESNETS.fullmatch(name):
        return {}
    return _LIBRARY_INIT | {"args": _SINGLE_OUTPUT if name in _AUXILIARY else {}}


@dataclass
class ModelConfig(Section):
    """The `model` section: the network and its initial weights."""

    _prefix = "model."

    # resnet18 | resnet34 | resnet50 | resnet101 | resnet152 (torchvision, "v1.5") |
    # torchvision:NAME | timm:NAME
    name: str = "resnet50"
    # numbers and booleans for a library network, as in model.args.drop_path_rate=0.1
    args: ModelArguments = field(default_factory=dict)
    # standard | small (for 28 to 96 px). `standard` is a 7x7 convolution of stride 2, then max
    # pool; `small` is a 3x3 convolution of stride 1.
    stem: Annotated[str, OneOf("standard", "small")] = "standard"
    # multiplier for the channels of every layer: a multiple of 1/8, at most 8
    width: float = 1.0
    # 3 | 1, for grayscale images: the mean of red, green and blue
    in_channels: Annotated[int, OneOf(3, 1)] = 3
    # auto: the number of classes in the data
    num_classes: Annotated[int | str, Bounds(least=2, most=2**20, keyword="auto")] = "auto"
    # kaiming_normal (fan_in) | kaiming_convs (no linear) | library (torchvision ResNets: fan_out)
    init: Annotated[str, OneOf("kaiming_normal", "kaiming_convs", "library")] = "kaiming_normal"
    # BatchNorm weights: uniform, U[0, 1) | ones
    bn_init: Annotated[str, OneOf("uniform", "ones")] = "uniform"
    # the last BatchNorm weight of each residual branch starts at 0
    zero_init_last_bn: bool = False
    # initial weights: a .pt or .safetensors file | a run | torchvision | timm:NAME | hf:USER/NAME
    weights: str = ""
    # freeze the first layers, up to this one: none | stem | layer1 | layer2 | layer3 | backbone.
    # `backbone` freezes all layers but the classifier. Networks other than ResNets have only `none`
    # and `backbone`.
    freeze: Annotated[str, OneOf(*FREEZABLE)] = "none"
    # BatchNorm keeps the initial mean and variance; needs model.weights. The weight and bias of
    # BatchNorm are trained, unless `model.freeze` freezes them.
    freeze_bn: bool = False

    @property
    def arguments(self) -> ModelArguments:
        """Arguments of the network, except its name and number of classes."""
        arguments = self._get_changes()
        stem: ModelArguments = {"small_stem": True} if arguments.pop("stem", "") else {}
        return self.args | stem | arguments

    @property
    def freezes_statistics(self) -> bool:
        """Whether all BatchNorms keep the initial mean and variance."""
        return self.freeze_bn or self.freeze == "backbone"

    @property
    def title(self) -> str:
        """The name, with the settings that differ from the torchvision network."""
        return " ".join(
            [self.name, *(f"{key}={value}" for key, value in self._get_changes().items())]
        )

    def _get_changes(self) -> dict[str, Any]:
        return {
            key: getattr(self, key)
            for key in _TORCHVISION_VALUES
            if getattr(self, key) != _TORCHVISION_VALUES[key]
        }

    def problems(self) -> Iterator[Problem]:
        """Yield the problems; keys are relative to `model`."""
        has_layers = self.name in NETWORKS or _RESNETS.fullmatch(self.name)
        for problem in super().problems():
            is_layer = problem.key == "freeze" and not has_layers
            yield problem._replace(valid=("none", "backbone")) if is_layer else problem
        if self.name not in NETWORKS and not LIBRARY.fullmatch(self.name):
            valid = (*NETWORKS, "torchvision:NAME", "timm:NAME")
            clause = "is not a known network"
            yield Problem("name", self.name, clause, self._suggest_name(), valid)
        elif self.name not in NETWORKS:
            yield from self._find_setting_problems()
        if self.args and self.name in NETWORKS:
            clause = Statement(f"{self.name} takes no arguments")
            hint = Hint(f"networks of timm and torchvision do: model.name=timm:{self.name}")
            for name, value in self.args.items():
                yield Problem(f"args.{name}", value, clause, hint)
        if not (0 < self.width <= 8 and self.width * 8 % 1 == 0):
            yield Problem("width", self.width, "must be a multiple of 0.125, and at most 8")
        if self.freeze in FREEZABLE[1:] and not self.weights:
            weights = self.name if self.name.startswith("timm:") else "torchvision"
            fix = (Change(f"model.weights={weights}"), Change("model.freeze=none"))
            yield Problem("freeze", self.freeze, "would freeze random weights", fix)
        if self.freeze_bn and not self.weights:
            clause = "would freeze the statistics of random weights"
            yield Problem("freeze_bn", True, clause, Change("model.freeze_bn=false"))

    def _find_setting_problems(self) -> Iterator[Problem]:
        """Yield problems of settings that the library of the network does not support."""
        for key, value in self._get_changes().items():
            clause = f"is for {', '.join(NETWORKS)}"
            yield Problem(key, value, clause, Change(f"model.{key}={_TORCHVISION_VALUES[key]}"))
        if _RESNETS.fullmatch(self.name):
            return
        if wrong := [key for key in _LIBRARY_INIT if getattr(self, key) != _LIBRARY_INIT[key]]:
            fix = " ".join(f"model.{key}={str(_LIBRARY_INIT[key]).lower()}" for key in wrong)
            clause = "is for ResNets; their library initializes other networks"
            yield Problem(wrong[0], getattr(self, wrong[0]), clause, fix)
        if self.freeze in FREEZABLE[1:-1]:
            clause = "is a part of a ResNet; other networks freeze all but the classifier"
            yield Problem("freeze", self.freeze, clause, Change("model.freeze=backbone"))

    def _suggest_name(self) -> str:
        """Return the most likely intended arguments, or "".

        They select a network with the settings it needs, or weights if the name is that of a file.
        """
        if parts := re.fullmatch(r"(?:hf:)?(timm|torchvision)[:/](\w+)(\.\w+)?", self.name.lower()):
            library, name, tag = parts.groups()
            weights = f" model.weights={library}:{name}{tag}" if tag else ""
            others = replace(self, weights="") if tag else self
            return others.format_selection(f"{library}:{name}") + weights
        if self.name.endswith((".pt", ".pth", ".safetensors")):
            return Change(f"model.weights={self.name}")
        plain_name = re.sub(".*[/:]|[^a-z0-9_]", "", self.name.lower())
        # resnet50d and resnext50 are timm networks
        ours = [
            name for name in NETWORKS if plain_name.endswith(name[6:]) and "next" not in plain_name
        ]
        matches = get_close_matches(plain_name, ours, n=1, cutoff=0.8)
        if re.fullmatch("resnet[0-9o]+", plain_name):
            matches = get_close_matches(plain_name, NETWORKS, n=1)
        return (
            self.format_selection(matches[0] if matches else f"timm:{plain_name}")
            if plain_name
            else ""
        )

    def format_selection(self, name: str) -> str:
        """Return the arguments that select another network, with the settings it needs."""
        selection = Change(f"model.name={name}")
        if name in NETWORKS:
            return selection
        misfits = replace(self, name=name)._find_setting_problems()
        fixes = [
            fix for wrong in misfits if wrong.key not in _LIBRARY_INIT for fix in wrong.corrections
        ]
        if name.startswith("timm:") and self.weights.startswith("torchvision"):
            fixes.append(f"model.weights={name}")
        return " ".join([selection, *fixes]) if fixes else selection
