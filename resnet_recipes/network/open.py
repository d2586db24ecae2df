"""Open a trained network from a run, a checkpoint, a file or a published name."""

import hashlib
import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import torch
import torchvision

from resnet_recipes import backbones
from resnet_recipes.base import names
from resnet_recipes.base.errors import (
    Command,
    Fix,
    Hint,
    Kind,
    NotReadyError,
    RecipeError,
    Statement,
    Value,
)
from resnet_recipes.base.model_config import LIBRARY, NETWORKS, ModelConfig
from resnet_recipes.base.paths import find_similar_path
from resnet_recipes.base.suggestions import FOREIGN_VALUES
from resnet_recipes.network import hub, image_settings, matching
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.load import Network, load


class AbsentError(NotReadyError):
    """The weights are not on this machine; the fix is the command that downloads them."""


def open_network(
    weights: str, model: ModelConfig | None = None, downloads: bool = False
) -> Network:
    """Return the network of a run folder, a checkpoint, a file or a published name.

    Published names are timm:NETWORK.TAG, torchvision:NETWORK and hf:USER/NAME. With `model`,
    torchvision and torchvision:NAME are also valid. Only hf: is downloaded, and only if
    `downloads`. A file that does not describe its network is assumed to contain `model`. Raises
    NotReadyError, whose key is `weights`, or RecipeError if no library has `model`.
    """
    source = re.sub("^hf:timm/", "timm:", weights)
    published = _parse_published_name(source)
    if published:
        _require_network(published.name, weights)
    if model:
        backbones.require_network(model.name)
    if published and model and _get_short_name(published) != _get_short_name(model):
        clause = f"has no weights for {model.name}"
        raise NotReadyError.at(weights, clause, model.format_selection(published.name))
    is_published = _is_published(source)
    try:
        path = _find_weights_file(source, model or published, downloads)
        assumed = None
        if model := model or published:
            images = image_settings.find_image_settings(
                model.name, source if is_published else str(path)
            )
            assumed = NetworkDescription(model.name, 1, arguments=model.arguments, **images)
        network = load(path, assumed)
    except NotReadyError as error:
        raise error.with_key(weights) from None
    network.path = path
    network.is_described = network.is_described or is_published
    return network


def iterate_notes(network: Network) -> Iterator[str]:
    """Yield reasons to doubt the network of a file."""
    about = network.about
    matched = "tensors are matched by order and shape"
    if network.is_described:
        if network.is_matched_by_order:
            yield f"the file uses the names of another library, so {matched}"
        return
    mean = "/".join(f"{level / 255:.3g}" for level in about.mean)
    blur = ", without BlurPool," if about.architecture in NETWORKS else ""
    yield (
        f"the file does not describe its network; it is read as {about.architecture}{blur} with "
        f"images normalized by a mean of {mean}"
        + (f"; its {matched}" if network.is_matched_by_order else "")
    )
    for other in matching.find_lookalikes(about.architecture, about.arguments):
        yield f"the file also fits {other.name}, which {other.advice}"


def _require_network(name: str, weights: str) -> None:
    """Raise NotReadyError if no library has this network; the fixes are similar names."""
    try:
        backbones.require_network(name)
    except NotReadyError as error:
        raise error.with_key(weights) from None
    except RecipeError as error:
        (problem,) = error.problems
        near = tuple(Value(change.value) for change in problem.changes)
        raise NotReadyError.at(weights, problem.clause, near or problem.advice) from None


def _is_published(weights: str) -> bool:
    """Return whether a library published the weights, so that their name defines the network."""
    return bool(names.PUBLISHED_WEIGHTS.fullmatch(weights)) and not weights.startswith("hf:")


def _parse_published_name(weights: str) -> ModelConfig | None:
    """Return the network of a published name, such as timm:resnet50.a1_in1k."""
    name = weights.partition(".")[0]
    return ModelConfig(name) if _is_published(weights) and LIBRARY.fullmatch(name) else None


def _get_short_name(model: ModelConfig) -> str:
    return model.name.rpartition(":")[2]


def _find_weights_file(weights: str, model: ModelConfig | None, downloads: bool) -> Path:
    """Return the weights file. Raises NotReadyError, or AbsentError with the download command."""
    if not names.PUBLISHED_WEIGHTS.fullmatch(weights):
        if not os.path.lexists(weights):
            typed = os.path.relpath(weights)
            meant = FOREIGN_VALUES["model.weights"].get(typed.lower())
            library = "torchvision, " if model else ""
            hint = f"a .pt or .safetensors file, a run folder, {library}timm:NAME or hf:USER/NAME"
            fix: Fix = Hint(hint)
            if meant:
                fix = meant.command, Hint(meant.note)
            elif near := find_similar_path(Path(weights)):
                fix = Value(near)
            raise NotReadyError.at(weights, "", fix, Kind.ABSENT)
        return Path(weights)
    source, _, name = weights.partition(":")
    if source == "torchvision":
        return _find_in_torchvision_cache(weights, name, model)
    if source == "hf":
        return hub.fetch(weights) if downloads else _find_in_hub_cache(weights, name)
    tagged = name if "." in name else image_settings.find_default_tag(name) or name
    return _find_in_hub_cache(weights, f"timm/{tagged}")


def _find_in_torchvision_cache(weights: str, name: str, model: ModelConfig | None) -> Path:
    """Return the weights file in the torchvision cache."""
    if model is None:
        clause = "does not name its network"
        raise NotReadyError.at(weights, clause, Value("torchvision:resnet50"))
    network = _get_short_name(model)
    if model.name.startswith("timm:"):
        clause = f"has no weights for {model.name}"
        tagged = image_settings.find_default_tag(network)
        hint = Hint("pass a weights file or another network")
        fix: Fix = Value(f"timm:{tagged}") if tagged else hint
        raise NotReadyError.at(weights, clause, fix)
    members = torchvision.models.get_model_weights(network)
    if name not in ("", network, *members.__members__):
        others = tuple(Value(f"torchvision:{item.name}") for item in members)
        raise NotReadyError.at(weights, "has no such weights", others)
    member = members.__members__.get(name, members.DEFAULT)
    path = Path(torch.hub.get_dir()) / "checkpoints" / member.url.rpartition("/")[2]
    code = f"import torchvision; torchvision.models.{network}(weights='{member.name}')"
    download = Command(f'python3 -c "{code}"')
    if not path.is_file():
        clause = f"is not on this machine: {path} does not exist"
        raise AbsentError.at(
            weights, clause, (download, Hint(f"or copy {member.url} to that path"))
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not digest.startswith(path.stem.rpartition("-")[2]):
        fixes = Hint(f"delete {path}"), download
        raise NotReadyError.at(weights, Statement(f"{path} has a wrong checksum"), fixes)
    return path


def _find_in_hub_cache(weights: str, name: str) -> Path:
    """Return the local copy of a repository's weights file."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    repository = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub")
    repository /= f"models--{name.replace('/', '--')}"
    files = sorted(
        [path for path in (hub.get_copy_path(name),) if path.is_file()]
        + [*repository.glob(f"snapshots/*/{hub.HUB_WEIGHTS}")],
        key=lambda path: path.stat().st_mtime,
    )
    if not files:
        network, _, tag = name.removeprefix("timm/").partition(".")
        tags = image_settings.list_tags(network) if name.startswith("timm/") else []
        if tags and tag not in tags:
            near = get_close_matches(tag, tags, n=1) or tags[:1]
            valid = Hint(f"timm has weights with the tags {', '.join(tags)}")
            fix = (Value(f"timm:{network}.{near[0]}"), valid)
            raise NotReadyError.at(weights, f"has an unknown tag, {tag}", fix)
        clause = f"is not on this machine: {repository} has no model.safetensors"
        download = Command(f"pip install huggingface_hub && hf download {name} model.safetensors")
        raise AbsentError.at(weights, clause, download)
    return files[-1]
