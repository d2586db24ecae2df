"""Find the networks that fit a file's tensors, by name and shape, or by order."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from resnet_recipes import backbones
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.base.model_config import ModelArguments
from resnet_recipes.base.suggestions import MIN_SIMILAR_LETTERS
from resnet_recipes.network import image_settings

#: BatchNorm's batch counter, which files older than torch 0.4.1 do not have.
_COUNTER = "num_batches_tracked"

#: Maximum number of networks with a similar name, and with a name that contains another, that are
#: built, without values, to compare them.
_MAX_NETWORKS = 12

#: Differences between networks in the words of messages.
_TITLES = {
    "Conv2d": "padding (Conv2d)",
    "Conv2dSame": "padding (Conv2dSame)",
    "eps": "BatchNorm's epsilon",
    "normalization": "normalization of images",
}


def match_tensors(state: Mapping[str, Tensor], model: nn.Module, path: Path) -> dict[str, Tensor]:
    """Return the tensors of the file `path` under the names of `model`.

    Tensors with the names of another library are matched by order; .safetensors files do not keep
    it. Every tensor must then have the right shape and kind (weight, bias, running_mean ...). If
    nothing matches, the tensors are returned unchanged. The number of classes may differ.
    """
    expected = {name: item for name, item in model.state_dict().items() if _COUNTER not in name}
    tensors = {name: item for name, item in state.items() if _COUNTER not in name}
    is_sorted = path.suffix == ".safetensors"
    if tensors.keys() == expected.keys() or is_sorted or len(tensors) != len(expected):
        return dict(state)
    head = backbones.find_classifier(model)
    for (name, tensor), (ours, like) in zip(tensors.items(), expected.items(), strict=True):
        has_kind = name.rpartition(".")[2] == ours.rpartition(".")[2]
        first = 1 if ours.startswith(f"{head}.") else 0  # skips the dimension of the classes
        if not has_kind or _get_shape(tensor)[first:] != like.shape[first:]:
            return dict(state)
    return dict(zip(expected, tensors.values(), strict=True))


def find_fitting_networks(state: Mapping[str, Tensor], path: Path) -> list[str]:
    """Return library networks that fit a file, and whose names are similar or contain its name."""
    stem = re.sub(r"[^a-z0-9]+", "_", path.stem.lower())
    stem = re.sub(r"_[0-9a-f]{6,64}$", "", stem)
    candidates = [f"torchvision:{name}" for name in backbones.list_networks("torchvision")]
    if find_spec("timm"):
        candidates += [f"timm:{name}" for name in backbones.list_networks("timm")]
    short = {name.partition(":")[2] for name in candidates}
    similar = get_close_matches(stem, short, n=_MAX_NETWORKS, cutoff=0.6)
    if len(stem) >= MIN_SIMILAR_LETTERS:  # "lite0" is part of efficientnet_lite0
        similar += sorted(name for name in short if stem in name)[:_MAX_NETWORKS]
    fitting = [
        name
        for name in candidates
        if name.partition(":")[2] in similar and _is_fitting(state, path, name)
    ]
    # EfficientNet-PyTorch's names of tensors, with weights from TensorFlow
    is_from_tensorflow = "_conv_stem.weight" in state

    def order(name: str) -> tuple[bool, int]:
        short = name.partition(":")[2]
        return is_from_tensorflow and not short.startswith("tf_"), similar.index(short)

    return sorted(fitting, key=order)


def _is_fitting(state: Mapping[str, Tensor], path: Path, name: str) -> bool:
    model = backbones.build_structure(name, 2, {})
    expected = model.state_dict()
    head = f"{backbones.find_classifier(model)}."
    match = match_tensors(state, model, path)
    return all(
        name.startswith(head) or _COUNTER in name or _get_shape(match.get(name)) == like.shape
        for name, like in expected.items()
    ) and not {name for name in match if name not in expected}


class Lookalike(NamedTuple):
    """A network that accepts the weights of another network, but computes something else."""

    name: str
    differences: list[str]  # layers and settings that differ between the two

    @property
    def advice(self) -> str:
        """The differences, and how to choose between the two networks."""
        return f"differs in {', '.join(self.differences)}; if you are not sure, compare accuracies"


def find_lookalikes(name: str, arguments: ModelArguments) -> Iterator[Lookalike]:
    """Yield timm networks that accept the same weights, but compute something else.

    Compares only networks with a similar name: building all takes minutes.
    """
    library, _, short = name.partition(":")
    if library != "timm":
        return
    ours = backbones.build_structure(name, 2, arguments)
    shapes = {key: item.shape for key, item in ours.state_dict().items()}
    digits = re.findall(r"\d+", short)
    candidates = [
        candidate
        for candidate in backbones.list_networks("timm")
        if re.findall(r"\d+", candidate) == digits
    ]
    for other in get_close_matches(short, candidates, n=_MAX_NETWORKS, cutoff=0.7):
        try:
            theirs = backbones.build_structure(f"timm:{other}", 2, arguments)
        except RecipeError:
            continue
        if (
            other == short
            or {key: item.shape for key, item in theirs.state_dict().items()} != shapes
        ):
            continue
        differences = _list_layer_differences(ours, theirs)
        images = map(image_settings.find_image_settings, (name, f"timm:{other}"))
        if len({(fields.get("mean"), fields.get("std")) for fields in images}) > 1:
            differences.append("normalization")
        if differences:
            how = sorted(_TITLES.get(difference, difference) for difference in differences)
            yield Lookalike(f"timm:{other}", how)


def _list_layer_differences(ours: nn.Module, theirs: nn.Module) -> list[str]:
    """Return the layers and settings that differ between two networks with the same weights."""
    names = set[str]()
    layers = dict(theirs.named_modules())
    for name, layer in ours.named_modules():
        other = layers.get(name)
        if other is None:
            names.add(type(layer).__name__)
            continue
        if type(layer) is type(other):
            names |= {key for key, _ in _read_settings(layer) ^ _read_settings(other)}
        elif not any(other.children()):
            names.add(type(other).__name__)
    return sorted(names)


def _read_settings(layer: nn.Module) -> set[tuple[str, str]]:
    return set(re.findall(r"(\w+)=(\([^)]*\)|[^,]+)", layer.extra_repr()))


def _get_shape(tensor: object) -> tuple[int, ...]:
    return tuple(tensor.shape) if isinstance(tensor, Tensor) else ()
