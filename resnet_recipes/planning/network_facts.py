"""Facts about a network before a run: parameters, FLOPs, and unsupported image sizes."""

from collections.abc import Collection, Iterable, Iterator
from functools import cache, cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from resnet_recipes import backbones
from resnet_recipes.base.errors import Hint, Problem, Statement
from resnet_recipes.base.model_config import FREEZABLE, NETWORKS, ModelConfig
from resnet_recipes.base.text import get_first_line
from resnet_recipes.data.base import SoftLabels
from resnet_recipes.methods.stack import Stack
from resnet_recipes.planning.layers import (
    FlopCount,
    LayerCost,
    count_backbone_weights,
    count_features,
    count_flops,
)


class Teacher(NamedTuple):
    """A trained network whose outputs a run computes in every step or reads from a file."""

    network: "NetworkFacts | None"  # None: it has soft labels
    text: str  # description for the plan
    key: str  # setting that names it
    digest: str  # digest of its weights and description, or of its outputs
    soft_labels: SoftLabels | None = None


def count_teacher_flops(teachers: Iterable[Teacher], image_size: int) -> int:
    """Return the FLOPs of all teachers for one image of `image_size` pixels."""
    networks = (teacher.network for teacher in teachers)
    return sum(network.count_flops(image_size).forward for network in networks if network)


def make_network_facts(model: ModelConfig, classes: int, methods: Stack) -> "NetworkFacts":
    """Return the facts about a recipe's network.

    Raises RecipeError if its library cannot build it. All networks except plain ResNets are built
    without values, which takes seconds for some, so the facts are kept for other plans.
    """
    key = f"{model} {classes} {list(methods)}"
    if key not in _FACTS:
        is_plain = model.name in NETWORKS and not model.arguments
        facts_class = ResNetFacts if is_plain else BuiltNetworkFacts
        _FACTS[key] = facts_class(model, classes, methods)
    return _FACTS[key]


class ResNetFacts:
    """A ResNet of the recipes; its facts are computed from its layers."""

    is_random_in_forward, text = False, ""

    def __init__(self, model: ModelConfig, classes: int, methods: Stack):
        # predictions assume a backward pass through all layers
        self.is_predicted = model.freeze == "none"
        head = (count_features(model.name) + 1) * classes
        frozen = FREEZABLE.index(model.freeze)
        self.parameters = count_backbone_weights(model.name) + head
        self.trained_parameters = count_backbone_weights(model.name, frozen) + head
        self.count_flops = cache(
            lambda image_size: count_flops(model, classes, image_size, methods)
        )

    def problems(self) -> Iterator[Problem]:
        """Yield nothing: all methods support these networks."""
        return iter(())

    def size_problems(self, image_sizes: Collection[int], eval_size: int) -> Iterator[Problem]:
        """Yield nothing: these networks accept all image sizes."""
        return iter(())


class BuiltNetworkFacts:
    """Any other network; facts come from its structure without values."""

    is_predicted = False

    def __init__(self, model: ModelConfig, classes: int, methods: Stack):
        self._model, self._classes, self._methods = model, classes, methods
        self._plain = backbones.build_structure(model.name, classes, model.arguments)
        self.parameters = sum(weight.numel() for weight in self._plain.parameters())
        is_frozen = backbones.select_frozen(self._plain, model.freeze)
        self.trained_parameters = sum(
            weight.numel() for name, weight in self._plain.named_parameters() if not is_frozen(name)
        )
        self.count_flops = cache(self._count_flops)
        self.is_random_in_forward = not backbones.is_resnet(self._plain)
        library = backbones.get_library(model.name)
        is_initialized_by_library = model.init == "library" and not model.weights
        origin = f", initialized by {library}" if is_initialized_by_library else ""
        arguments = "".join(f", {key}={str(value).lower()}" for key, value in model.args.items())
        self.text = arguments + origin

    @cached_property
    def _changed_network(self) -> nn.Module:
        model = self._model
        network = backbones.build_structure(model.name, self._classes, model.arguments)
        self._methods.modify_model(network)
        is_frozen = backbones.select_frozen(network, model.freeze)
        for name, weight in network.named_parameters():
            weight.requires_grad_(not is_frozen(name))
        return network

    def problems(self) -> Iterator[Problem]:
        """Yield the settings and methods that do not apply to this network."""
        model, network = self._model, self._plain
        names = backbones.get_pretrained_cfg(network).get("classifier")
        head = network.get_parameter(f"{backbones.find_classifier(network)}.weight")
        if isinstance(names, tuple | list) or len(head) != self._classes:
            clause = "has several classifiers, or its classifier is not its last layer"
            yield Problem("model.name", model.name, clause, Hint("another network"))
        for method in self._methods:
            yield from (
                problem.under("methods") for problem in method.find_network_problems(network)
            )

    def size_problems(self, image_sizes: Collection[int], eval_size: int) -> Iterator[Problem]:
        """Yield the problem of the sizes that the network rejects, if there are any."""
        reasons = {
            image_size: self._explain_rejection(image_size)
            for image_size in dict.fromkeys((*image_sizes, eval_size))
        }
        rejected_sizes = [image_size for image_size in sorted(reasons) if reasons[image_size]]
        if not rejected_sizes:
            return
        is_evaluation = rejected_sizes == [eval_size]
        key = "data.eval_size" if is_evaluation else "data.train_size"
        sizes = ", ".join(map(str, rejected_sizes))
        clause = Statement(
            f"{self._model.name} does not take images of {sizes} px: {reasons[rejected_sizes[-1]]}"
        )
        native = backbones.get_pretrained_cfg(self._plain).get("input_size", (3, 224))[1]
        removals = [
            f"'~methods.{method.name}'"
            for method in self._methods
            if method.provides("loaded_size") or method.provides("size_after")
        ]
        settings = [f"data.train_size={native}", f"data.eval_size={native}"]
        fix = " ".join(settings if is_evaluation else settings + removals)
        if self._explain_rejection(native):
            fix = ""
        yield Problem(key, None, clause, fix)

    def _explain_rejection(self, image_size: int) -> str:
        _ = self._changed_network  # errors of methods do not depend on the size
        try:
            self.count_flops(image_size)
        except Exception as error:  # a network may raise any exception for a size
            return get_first_line(error)
        return ""

    def _count_flops(self, image_size: int) -> FlopCount:
        """Count the FLOPs for one image; also run the evaluation, which may differ.

        A layer has a second pass if its weights are trained, and a third pass if its input has a
        gradient.
        """
        network = self._changed_network
        layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        costs: list[LayerCost] = []

        def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            weight = layer.get_parameter("weight")
            passes = 1 + weight.requires_grad + inputs[0].requires_grad
            # the multiply-adds for two images are the FLOPs for one
            costs.append(LayerCost(output.numel() * weight[0].numel(), passes))

        hooks = [layer.register_forward_hook(count) for layer in layers]
        images = torch.empty(2, 3, image_size, image_size, device="meta")
        try:
            with FlopCounterMode(display=False) as counter:
                self._check(network.train()(images))
            # layers other than convolutions and linear layers
            rest = counter.get_total_flops() // 2 - FlopCount.of(costs).forward
            costs.append(LayerCost(rest, 1 if self._model.freeze == "backbone" else 3))
            result = FlopCount.of(costs)
            with torch.no_grad():
                self._check(network.eval()(images))
        finally:
            for hook in hooks:
                hook.remove()
        return result

    def _check(self, output: object) -> None:
        if not isinstance(output, Tensor) or output.shape != (2, self._classes):
            shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(f"its output is not a logit for each class but {shape}")


#: The facts about a network that a plan uses.
NetworkFacts = ResNetFacts | BuiltNetworkFacts

_FACTS: dict[str, NetworkFacts] = {}  # facts by a text of all settings that define a network
