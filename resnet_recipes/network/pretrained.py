"""Check and load pretrained weights: `model.weights` in a recipe."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from resnet_recipes.backbones import find_classifier, select_frozen
from resnet_recipes.base import names
from resnet_recipes.base.errors import Change, Fix, NotReadyError, Statement
from resnet_recipes.base.model_config import NETWORKS, ModelArguments, ModelConfig
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.imagenet import get_wordnet_ids, is_imagenet
from resnet_recipes.methods.module_class import change_class
from resnet_recipes.methods.stochastic_depth import unfold
from resnet_recipes.network.about import NetworkDescription, select_image_settings
from resnet_recipes.network.load import Network
from resnet_recipes.network.open import open_network


class PretrainedWeights(NamedTuple):
    """Pretrained weights for a new network."""

    network: Network  # the network in the file
    tensors: dict[str, Tensor]  # weights by name in the new network
    classifier_text: str  # text for the plan: whether the classifier is kept

    def iterate_details(self, config: ModelConfig) -> Iterator[str]:
        """Yield lines for the plan: weights loaded, replaced and frozen."""
        about = self.network.about
        yield f"{len(self.tensors)} tensors loaded"
        yield self.classifier_text
        if about.method_settings:
            yield f"they were trained with {', '.join(about.method_settings)}"
        if _must_sum_colors(config, about):
            yield "summed over colors, for gray images"
        yield from describe_frozen(config)

    def iterate_notes(self, config: ModelConfig, images: DataConfig) -> Iterator[str]:
        """Yield notes for the plan: image settings that the authors of the weights used."""
        is_public = names.PUBLISHED_WEIGHTS.fullmatch(config.weights) or ":" in config.name
        theirs, ours = map(select_image_settings, (self.network.about, images))
        if is_public and theirs != ours and not self.network.about.recipe:
            changed = [key for key, value in theirs.items() if value != ours[key]]
            yield (
                f"the weights were published with {_format_settings(theirs, changed)}; this run "
                f"uses {_format_settings(ours, changed)}"
            )


def describe_frozen(config: ModelConfig) -> Iterator[str]:
    """Yield lines for the plan: which layers and statistics are not trained."""
    if config.freeze == "backbone":
        yield "only the classifier is trained"
        return
    if config.freeze != "none":
        yield f"frozen up to {config.freeze}"
    if config.freeze_bn:
        yield "BatchNorm statistics frozen"


def _format_settings(images: Mapping[str, object], keys: Sequence[str]) -> str:
    values = {
        key: f"[{','.join(map(str, images[key]))}]"
        if isinstance(images[key], tuple)
        else images[key]
        for key in keys
    }
    return " ".join(f"data.{key}={value}" for key, value in values.items())


def find_weights(
    config: ModelConfig, classes: Sequence[str], network: Network | None = None
) -> PretrainedWeights:
    """Return the weights that `config.weights` names, with their classifier rows for `classes`.

    `network` is their network, if it was opened. Raises RecipeError if no library has the network,
    and AbsentError if the weights are not on this machine. Raises NotReadyError if they cannot be
    read or belong to another network.
    """
    network = network or open_weights(config)
    about = network.about
    others = (
        [*_find_differing_settings(config, about.arguments)]
        if about.architecture in NETWORKS
        else []
    )
    if about.architecture != config.name:
        clause = Statement(
            f"{config.weights} has the weights of {about.architecture}, not {config.name}"
        )
        raise _make_weights_error(
            config, clause, " ".join([config.format_selection(about.architecture), *others])
        )
    if others:
        clause = "has the weights of another stem, width or number of input channels"
        raise _make_weights_error(config, clause, " ".join(others))
    tensors = network.model.state_dict()
    rows, text = _match_rows(about, classes)
    classifier = f"{find_classifier(network.model)}."
    for name in [name for name in tensors if name.startswith(classifier)]:
        weight = tensors.pop(name)
        if rows:
            tensors[name] = weight[rows]
    if _must_sum_colors(config, about):
        tensors["conv1.weight"] = tensors["conv1.weight"].sum(1, keepdim=True)
    return PretrainedWeights(network, tensors, text)


def open_weights(config: ModelConfig) -> Network:
    """Return the network that `config.weights` names, of any architecture.

    Raises like `find_weights`.
    """

    def complete(advice: str) -> str:
        return config.format_selection(advice.value) if isinstance(advice, Change) else advice

    try:
        return open_network(config.weights, config)
    except NotReadyError as error:
        problems = error.with_key("model.weights", config.weights).problems
        raise type(error)(
            problem._replace(fix=tuple(map(complete, problem.advice))) for problem in problems
        ) from None


@torch.no_grad()
def load(model: nn.Module, start: PretrainedWeights) -> None:
    """Load the weights into `model`, in place; a new classifier keeps its initialization.

    If the network uses StochasticDepth, its factors are divided out, so that evaluation gives the
    same output as the original network.
    """
    model.load_state_dict(start.tensors, strict=False)
    unfold(model)


def freeze(model: nn.Module, config: ModelConfig) -> None:
    """Freeze weights and BatchNorm statistics from the input up to `config.freeze`, in place.

    `config.freeze_bn` freezes the statistics of all BatchNorms. Must run before the optimizer and
    `AllReduce` collect the trained parameters.
    """
    is_frozen = select_frozen(model, config.freeze)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and not is_frozen(name))
    for name, module in model.named_modules():
        keeps = config.freeze_bn or is_frozen(name)
        if keeps and isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            change_class(module, _make_frozen(type(module)))
            module.eval()


@cache
def _make_frozen(layer_class: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass of a BatchNorm that always stays in evaluation mode."""

    class Frozen(layer_class):
        def train(self, mode: bool = True) -> nn.Module:
            return super().train(False)

    return Frozen


def _match_rows(about: NetworkDescription, classes: Sequence[str]) -> tuple[list[int], str]:
    """Return a file's classifier row for each class (none if the classifier is new), and a text."""
    new = f"new classifier for {len(classes):,} classes"
    theirs = about.classes or (get_wordnet_ids() if is_imagenet(classes) else ())
    if about.num_classes != len(classes):
        return [], f"{new} (the file has {about.num_classes:,})"
    if not theirs:
        return [], f"{new} (the file does not name its own)"
    if theirs == tuple(classes):
        return [*range(len(classes))], "classifier kept"
    if others := sorted({*theirs} - {*classes}):
        return [], f"{new} (the file has others, as {others[0]})"
    return [theirs.index(name) for name in classes], "classifier kept, its classes reordered"


def _find_differing_settings(config: ModelConfig, theirs: ModelArguments) -> Iterator[str]:
    """Yield the model settings that would give a recipe's ResNet the shapes in the file."""
    values = {
        "stem": "small" if theirs.get("small_stem") else "standard",
        "width": theirs.get("width", 1.0),
        "in_channels": min(theirs.get("in_channels", 3), config.in_channels),  # 3 can become 1
    }
    for key, value in values.items():
        if value != getattr(config, key):
            yield f"model.{key}={value}"


def _must_sum_colors(config: ModelConfig, about: NetworkDescription) -> bool:
    return config.in_channels < about.arguments.get("in_channels", 3)


def _make_weights_error(config: ModelConfig, clause: str, fix: Fix) -> NotReadyError:
    return NotReadyError.of("model.weights", config.weights, clause, fix)
