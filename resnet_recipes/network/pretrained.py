"""Find, check and load the weights that a network starts from: `model.weights` in a recipe."""

import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torchvision
from torch import Tensor, nn

from resnet_recipes.backbones import classifier, frozen_by
from resnet_recipes.base import names
from resnet_recipes.base.architecture import NETWORKS, Arguments, ModelConfig
from resnet_recipes.base.errors import Fix, Hint, NotReadyError
from resnet_recipes.data.base import DataConfig, are_imagenets
from resnet_recipes.methods.stochastic_depth import unfold
from resnet_recipes.methods.surgery import adopt
from resnet_recipes.network import hub, published
from resnet_recipes.network.about import About
from resnet_recipes.network.load import Network
from resnet_recipes.network.load import load as load_network
from resnet_recipes.recipe.suggestions import meaning_of


class Start(NamedTuple):
    """The weights in a file that a network can start from."""

    path: Path
    tensors: dict[str, Tensor]  # by their names in the network
    about: About
    head: str  # what becomes of the classifier
    images: Mapping[str, Any]  # that their publisher says they are for; see network.published

    def text(self, config: ModelConfig, images: DataConfig) -> str:
        """Return a line for the plan: what is loaded, replaced and frozen, and for which images."""
        parts = [f"from {self.path}", f"{len(self.tensors)} tensors loaded", self.head]
        if self.about.surgery:
            parts.append(f"they were trained with {', '.join(self.about.surgery)}")
        if _sums_colours(config, self.about):
            parts.append("summed over colours, for grey images")
        if config.freeze != "none":
            parts.append(f"frozen: up to {config.freeze}")
        if others := [
            f"data.{key}={value}"
            for key, value in self.images.items()
            if hasattr(images, key) and value != getattr(images, key)
        ]:
            parts.append(f"published for {' '.join(others)}")
        return "; ".join(parts)


def find(config: ModelConfig, classes: Sequence[str]) -> Start:
    """Return the weights named by `config.weights`, with the classifier of these classes, if any.

    Raises NotReadyError if they are not on this machine, cannot be read, or belong to another
    network.
    """
    path = _located(config)
    try:
        network = load_network(path, config)
    except NotReadyError as error:
        (problem,) = error.problems
        # of a run, or in a cache
        place = "" if problem.key == config.weights else problem.key
        raise _refused(config, problem.about(place), problem.fix) from None
    images = published.images_of(config, network)
    about = replace(network.about, **images)
    ours = about.architecture in NETWORKS
    others = [*_differing(config, about.arguments)] if ours else []
    if about.architecture != config.name:
        rule = f"{path} has the weights of {about.architecture}, not {config.name}"
        raise _refused(config, rule, " ".join([config.named(about.architecture), *others]))
    if others:
        rule = f"{path} has the weights of another stem, width or number of input channels"
        raise _refused(config, rule, " ".join(others))
    kept, (rows, text) = network.model.state_dict(), _rows(about, classes)
    for name in [name for name in kept if name.startswith(f"{classifier(network.model)}.")]:
        weight = kept.pop(name)
        if rows:
            kept[name] = weight[rows]
    if _sums_colours(config, about):
        kept["conv1.weight"] = kept["conv1.weight"].sum(1, keepdim=True)
    return Start(path, kept, about, text, images)


def named(place: str) -> Network:
    """Return a trained network: of a run, a checkpoint or a file, timm:NAME or hf:USER/NAME.

    Raises NotReadyError.
    """
    # timm's weights have a tag after the network's name
    name = place.partition(".")[0] if place.startswith("timm:") else ""
    config = ModelConfig(name=name, weights=place)
    network = load_network(_located(config), config if name else None)
    network.about = replace(network.about, **published.images_of(config, network))
    return network


@torch.no_grad()
def load(model: nn.Module, start: Start) -> None:
    """Load the weights into `model`, in place; a new classifier keeps its initialisation.

    If the network has StochasticDepth, its factors are divided out so that evaluation gives the
    same output as the file's network.
    """
    model.load_state_dict(start.tensors, strict=False)
    unfold(model)


def freeze(model: nn.Module, up_to: str) -> None:
    """Freeze the weights and BatchNorm statistics from the input up to `up_to`, in place.

    Call it before DDP.
    """
    is_frozen = frozen_by(model, up_to)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and not is_frozen(name))
    for name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and is_frozen(name):
            adopt(module, _frozen(type(module)))
            module.eval()


@cache
def _frozen(kind: type[nn.Module]) -> type[nn.Module]:
    """Return a kind of BatchNorm that stays in evaluation mode."""

    class Frozen(kind):
        def train(self, mode: bool = True) -> nn.Module:
            return super().train(False)

    return Frozen


def _rows(about: About, classes: Sequence[str]) -> tuple[list[int], str]:
    """Return the row of a file's classifier for each class, none for a new one; and what is so."""
    theirs, new = about.classes, f"new classifier for {len(classes):,} classes"
    if about.num_classes != len(classes):
        return [], f"{new} (the file has {about.num_classes:,})"
    if not theirs and not are_imagenets(classes):
        return [], f"{new} (the file does not name its own)"
    if not theirs or theirs == tuple(classes):
        return [*range(len(classes))], "classifier kept"
    if others := sorted({*theirs} - {*classes}):
        return [], f"{new} (the file has others, as {others[0]})"
    rows = [theirs.index(name) for name in classes]
    moved = [
        f"{name} from {row} to {label}"
        for label, (name, row) in enumerate(zip(classes, rows, strict=True))
        if row != label
    ]
    more = f" and {len(moved) - 3:,} more" if len(moved) > 3 else ""
    return rows, f"classifier kept, in another order: {', '.join(moved[:3])}{more}"


def _differing(config: ModelConfig, theirs: Arguments) -> Iterator[str]:
    """Yield the settings of a recipes' ResNet in which a file's network is another one."""
    known = {
        "stem": "small" if theirs.get("small_stem") else "standard",
        "width": theirs.get("width", 1.0),
        "in_channels": min(theirs.get("in_channels", 3), config.in_channels),  # 3 become 1
    }
    for key, value in known.items():
        if value != getattr(config, key):
            yield f"model.{key}={value}"


def _sums_colours(config: ModelConfig, about: About) -> bool:
    return config.in_channels < about.arguments.get("in_channels", 3)


def _located(config: ModelConfig) -> Path:
    """Return the weights file. Raises NotReadyError, which says how to get it."""
    if names.WEIGHTS.fullmatch(config.weights):
        source, _, name = config.weights.partition(":")
        if source == "torchvision":
            return _from_torchvision(config, name)
        return _from_hub(config, name if source == "hf" else f"timm/{name}")
    path = Path(config.weights)
    if not path.exists():
        typed = os.path.relpath(path)
        meant = meaning_of("weights", typed)
        library = "torchvision, " if config.name else ""
        fix = Hint(f"a .pt or .safetensors file, a run folder, {library}timm:NAME or hf:USER/NAME")
        if meant and meant.words != shlex.quote(f"model.weights={typed}"):
            fix = meant.words
        raise _refused(config, "does not exist", fix)
    return path


def _from_torchvision(config: ModelConfig, name: str) -> Path:
    """Return the weights file in torchvision's cache.

    Its name contains the first digits of its SHA-256.
    """
    library, _, network = config.name.rpartition(":")
    if library == "timm":
        rule = f"has no weights for {config.name}"
        raise _refused(config, rule, f"model.weights=timm:{network}.TAG")
    members = torchvision.models.get_model_weights(network)
    if name and name not in members.__members__:
        raise _refused(
            config,
            "has no such weights",
            tuple(f"model.weights=torchvision:{item.name}" for item in members),
        )
    member = members[name] if name else members.DEFAULT
    path = Path(torch.hub.get_dir()) / "checkpoints" / member.url.rpartition("/")[2]
    download = (
        f"python3 -c \"import torchvision; torchvision.models.{network}(weights='{member.name}')\""
    )
    if not path.is_file():
        rule = f"is not on this machine: {path} does not exist"
        raise _refused(config, rule, (download, Hint(f"or copy {member.url} to that path")))
    with path.open("rb") as file:
        if (
            not hashlib.file_digest(file, "sha256")
            .hexdigest()
            .startswith(path.stem.rpartition("-")[2])
        ):
            raise _refused(
                config,
                f"checksum mismatch: {path}",
                (Hint(f"delete {path}"), download),
            )
    return path


def _from_hub(config: ModelConfig, name: str) -> Path:
    """Return this machine's copy of a repository's file; a run downloads nothing.

    It came by `load("hf:USER/NAME")`, or is in the cache of the Hugging Face Hub.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    repository = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub")
    repository /= f"models--{name.replace('/', '--')}"
    found = sorted(
        [path for path in (hub.copy_of(name),) if path.is_file()]
        + [*repository.glob(f"snapshots/*/{hub.WEIGHTS}")],
        key=lambda path: path.stat().st_mtime,
    )
    if not found:
        rule = f"is not on this machine: {repository} has no model.safetensors"
        raise _refused(
            config,
            rule,
            f"pip install huggingface_hub && hf download {name} model.safetensors",
        )
    return found[-1]


def _refused(config: ModelConfig, rule: str, fix: Fix = ()) -> NotReadyError:
    return NotReadyError.of("model.weights", config.weights, rule, fix)
