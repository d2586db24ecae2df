"""Which network a file's tensors fit, by their names and shapes, or by their order."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor, nn

from resnet_recipes import backbones
from resnet_recipes.base.architecture import ModelArguments
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.network import published

#: Counts the batches of a BatchNorm, which files from before torch 0.4.1 do not have.
_COUNTER = "num_batches_tracked"

#: How many networks of similar names are built, without values, to compare them with a file.
_MOST = 12


def matched(state: Mapping[str, Tensor], model: nn.Module, is_ordered: bool) -> dict[str, Tensor]:
    """Return a file's tensors by the names of `model`.

    Names of another library are matched by their order if the file keeps it (`is_ordered`), and
    if every tensor then has its shape and kind (weight, bias, running_mean ...). What matches in
    no way is returned as it is. The number of classes may differ.
    """
    wanted = {name: item for name, item in model.state_dict().items() if _COUNTER not in name}
    named = {name: item for name, item in state.items() if _COUNTER not in name}
    if named.keys() == wanted.keys() or not is_ordered or len(named) != len(wanted):
        return dict(state)
    head = backbones.classifier(model)
    for (name, tensor), (ours, like) in zip(named.items(), wanted.items(), strict=True):
        is_kind = name.rpartition(".")[2] == ours.rpartition(".")[2]
        first = 1 if ours.startswith(f"{head}.") else 0  # the dimension of classes
        if not is_kind or _shape(tensor)[first:] != like.shape[first:]:
            return dict(state)
    return dict(zip(wanted, named.values(), strict=True))


def takers(state: Mapping[str, Tensor], path: Path) -> list[str]:
    """Return the libraries' networks that fit a file, among those with a name like the file's."""
    stem = re.sub(r"[^a-z0-9]+", "_", path.stem.lower())
    stem = re.sub(r"_[0-9a-f]{6,64}$", "", stem)
    known = [f"torchvision:{name}" for name in backbones.names("torchvision")]
    if find_spec("timm"):
        known += [f"timm:{name}" for name in backbones.names("timm")]
    short = {name.partition(":")[2] for name in known}
    near = get_close_matches(stem, short, n=_MOST, cutoff=0.6)
    fitting = [
        name for name in known if name.partition(":")[2] in near and _fits(state, path, name)
    ]
    return sorted(fitting, key=lambda name: near.index(name.partition(":")[2]))


def _fits(state: Mapping[str, Tensor], path: Path, name: str) -> bool:
    model = backbones.structure(name, 2, {})
    wanted, head = model.state_dict(), f"{backbones.classifier(model)}."
    found = matched(state, model, keeps_order(path))
    return all(
        name.startswith(head) or _COUNTER in name or _shape(found.get(name)) == like.shape
        for name, like in wanted.items()
    ) and not {name for name in found if name not in wanted}


def keeps_order(path: Path) -> bool:
    """Return whether a file has its tensors in the network's order; .safetensors sorts them."""
    return path.suffix != ".safetensors"


def lookalikes(name: str, arguments: ModelArguments) -> Iterator[tuple[str, list[str]]]:
    """Yield networks of timm that take the same files, but compute something else, and how.

    Of networks with a similar name: building all 1,371 takes minutes.
    """
    library, _, short = name.partition(":")
    if library != "timm":
        return
    ours = backbones.structure(name, 2, arguments)
    shapes = {key: item.shape for key, item in ours.state_dict().items()}
    digits = re.findall(r"\d+", short)
    known = [one for one in backbones.names("timm") if re.findall(r"\d+", one) == digits]
    for other in get_close_matches(short, known, n=_MOST, cutoff=0.7):
        try:
            theirs = backbones.structure(f"timm:{other}", 2, arguments)
        except RecipeError:
            continue
        if (
            other == short
            or {key: item.shape for key, item in theirs.state_dict().items()} != shapes
        ):
            continue
        how = _differences(ours, theirs)
        levels = [published.levels(f"timm:{one}") for one in (short, other)]
        if how or levels[0] != levels[1]:
            yield f"timm:{other}", how + ["normalization"] * (levels[0] != levels[1])


def _differences(ours: nn.Module, theirs: nn.Module) -> list[str]:
    """Return in which layers and settings two networks with the same weights differ."""
    found = set[str]()
    layers = dict(theirs.named_modules())
    for name, layer in ours.named_modules():
        other = layers.get(name)
        if other is None:
            found.add(type(layer).__name__)
            continue
        if type(layer) is type(other):
            found |= {key for key, _ in _settings(layer) ^ _settings(other)}
        elif not any(other.children()):
            found.add(type(other).__name__)
    return sorted(found)


def _settings(layer: nn.Module) -> set[tuple[str, str]]:
    """Return a layer's settings as its representation has them."""
    return set(re.findall(r"(\w+)=(\([^)]*\)|[^,]+)", layer.extra_repr()))


def _shape(tensor: object) -> tuple[int, ...]:
    return tuple(tensor.shape) if isinstance(tensor, Tensor) else ()
