"""Read a trained network from a run folder, a checkpoint or a weights file.

Use `network.open`, which finds the file.
"""

import os
import shlex
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from resnet_recipes import backbones
from resnet_recipes.base.errors import (
    Change,
    Fix,
    Hint,
    NotReadyError,
    RecipeError,
    Statement,
    Value,
)
from resnet_recipes.base.model_config import NETWORKS
from resnet_recipes.data.base import normalize
from resnet_recipes.data.images.decode import BadImageError, read_file, read_pixels
from resnet_recipes.data.images.python import crop_center
from resnet_recipes.methods.stack import Stack
from resnet_recipes.methods.stochastic_depth import fold
from resnet_recipes.network import about, image_settings
from resnet_recipes.network.about import NetworkDescription
from resnet_recipes.network.archive import ArchiveError, DamagedError
from resnet_recipes.network.matching import (
    find_fitting_networks,
    find_lookalikes,
    match_tensors,
)
from resnet_recipes.network.weights import read_weights
from resnet_recipes.recipe.build import build_recipe, is_plain_recipe
from resnet_recipes.run_folder import COMMAND, OVERRIDES, SUMMARY, WEIGHTS
from resnet_recipes.run_folder.runs import list_checkpoints


class Network(nn.Module):
    """A trained network, from images to logits.

    `network(network.transform("cat.jpg")[None])` returns the logits of an image, [1, K].
    """

    def __init__(
        self,
        model: nn.Module,
        about: NetworkDescription,
        is_described: bool = True,
        is_matched_by_order: bool = False,
    ):
        """Wrap the bare network with its description.

        `is_described` is whether the weights file describes the network. `is_matched_by_order` is
        whether the file uses tensor names of another library.
        """
        super().__init__()
        self.model, self.about = model, about
        self.is_described, self.is_matched_by_order = is_described, is_matched_by_order
        self.path: Path | None = None  # file that the network was read from
        self.eval()

    @property
    def classes(self) -> tuple[str, ...]:
        """The name of each output, or its number if the names are unknown."""
        return tuple(map(self.about.class_name, range(self.about.num_classes)))

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits [N, K] of normalized images [N, 3, H, W]."""
        return self.model(images)

    def embed(self, images: Tensor) -> Tensor:
        """Return the features [N, D] before the classifier, of normalized images [N, 3, H, W].

        A feature map is averaged over its pixels. Not thread-safe.
        """
        inputs: list[Tensor] = []
        classifier = self.model.get_submodule(backbones.find_classifier(self.model))
        with classifier.register_forward_pre_hook(lambda _, args: inputs.append(args[0])):
            self.model(images)
        features = inputs[0]
        return features.mean((2, 3)) if features.ndim == 4 else features

    def heat_map(self, images: Tensor, labels: Tensor) -> Tensor | None:
        """Return how much each pixel supports a class of its image, [N, S, S] from 0 to 1.

        LayerCAM of the last feature map (Jiang et al., 2021, IEEE Trans. Image Process. 30), for
        normalized images [N, 3, S, S]. None if the network has no feature map, such as a vision
        transformer. Not thread-safe.
        """
        outputs: list[Tensor] = []

        def keep(_: nn.Module, __: object, output: object) -> None:
            if isinstance(output, Tensor) and output.ndim > 2 and output.shape[2:] != (1, 1):
                outputs[:] = [output]

        with torch.enable_grad(), register_module_forward_hook(keep):
            scores = self.model(images.detach().requires_grad_()).gather(1, labels[:, None]).sum()
        shape = outputs[0].shape if outputs else ()
        if len(shape) != 4 or shape[2] != shape[3]:  # tokens, or channels last
            return None
        (slopes,) = torch.autograd.grad(scores, outputs)
        heat = (slopes.relu() * outputs[0].detach()).sum(1, keepdim=True).relu().float()
        heat = F.interpolate(heat, images.shape[2:], mode="bilinear")[:, 0]
        return heat / heat.amax((1, 2), keepdim=True).clamp(min=1e-12)

    def transform(
        self, image: str | os.PathLike | bytes | Image.Image | np.ndarray | Tensor
    ) -> Tensor:
        """Return an image as input for `forward`, float32 [3, S, S].

        It is resized, cropped and normalized as in evaluation. An array is uint8 [height, width,
        3], a tensor uint8 [3, height, width]. A path or the bytes of a file are decoded exactly as
        in the training loader, which ignores EXIF orientation. Raises BadImageError if it cannot be
        decoded.
        """
        about = self.about
        is_file = isinstance(image, str | os.PathLike)
        try:
            picture = read_pixels(read_file(image) if is_file else image)
        except BadImageError as error:
            raise BadImageError(f"{os.fspath(image) if is_file else 'image'} {error}") from None
        pixels = crop_center(
            picture,
            about.eval_resize,
            about.eval_size,
            about.eval_interpolation == "bicubic",
            about.fit,
            about.mean,
        )
        image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
        return normalize(image[None], about.mean, about.std)[0]


def load(path: Path | str, assumed: NetworkDescription | None = None) -> Network:
    """Return the network of a run folder, a checkpoint or a weights file.

    It is on the CPU, in float32, channels_last and evaluation mode. `assumed` describes a file
    without a description, unless it is a torchvision ResNet and the file's tensor names show
    another one. Nothing in a file is executed. Raises NotReadyError if the file cannot be used.
    """
    source = path = Path(path)
    try:
        if source.is_dir():
            path = _find_run_weights(source)
        file = read_weights(path)
        if "recipe" in file.content:
            return _load_checkpoint(file.content)
        state = _extract_state(file.content)
        if about := file.about:
            return Network(_assemble(about, about.methods(), state), about)
        return _build_undescribed(state, path, assumed)
    except RecipeError as error:  # the library is not installed, or does not have this network
        raise NotReadyError(problem._replace(key=str(path)) for problem in error.problems) from None
    except (ValueError, OSError) as error:
        clause = f"cannot be used: {getattr(error, 'strerror', None) or error}"
        fix = getattr(error, "fix", ()) or _replace_weights(path)
        if source != path:
            raise NotReadyError.at(source, Statement(f"{path.name} {clause}"), fix) from None
        raise NotReadyError.at(path, clause, fix) from None


def _build_undescribed(
    state: dict[str, Tensor], path: Path, assumed: NetworkDescription | None
) -> Network:
    name = _recognize_resnet(state)
    if assumed and (not name or assumed.architecture not in NETWORKS):
        description = assumed
    elif not name:
        fault = "it does not name its network, and its parameters are not named as in a ResNet"
        raise UnknownNetworkError(fault, state, path)
    else:
        description = NetworkDescription(
            name, 1, **image_settings.find_image_settings(name, str(path))
        )
        if assumed and assumed.architecture == name:
            description = replace(assumed, arguments={})  # `find` compares stem, width and channels
    structure = backbones.build_structure(description.architecture, 2, dict(description.arguments))
    renamed = match_tensors(state, structure, path)
    head = backbones.find_classifier(structure)
    if not name and f"{head}.weight" not in renamed:
        raise UnknownNetworkError(f"it is not {description.architecture}", state, path)
    description = replace(description, num_classes=_count_outputs(renamed, head))
    model = _assemble(description, description.methods(), renamed)
    return Network(model, description, False, next(iter(renamed)) not in state)


class NamingHint(Hint):
    """The advice for a file that no known network fits."""


_NAMING_HINT = NamingHint("name the network: model.name=timm:NAME or model.name=torchvision:NAME")
_NAME_SOURCES = (
    "NAME is in the code or the model card that came with the file; timm.list_models() lists all "
    "names"
)


class UnknownNetworkError(ArchiveError):
    """A file does not describe its network, and does not fit the assumed network."""

    def __init__(self, fault: str, state: Mapping[str, Any], path: Path):
        names = [name for name, item in state.items() if isinstance(item, Tensor)]
        tensors = f"{len(names)} tensors, {names[0]} to {names[-1]}" if names else "no tensors"
        super().__init__(f"{fault} ({tensors})")
        fitting = find_fitting_networks(state, path)
        self.fix: tuple[str, ...] = (
            *(Change(f"model.name={name}") for name in fitting),
            *(
                Hint(f"{other.name} {other.advice}")
                for other in (find_lookalikes(fitting[0], {}) if fitting else ())
                if other.name in fitting
            ),
        ) or (_NAMING_HINT, Hint(_NAME_SOURCES))


def _find_run_weights(folder: Path) -> Path:
    if (weights := folder / WEIGHTS).exists():
        return weights
    runs = sorted(path.parent for path in folder.glob(f"*/{WEIGHTS}"))
    files = [*folder.glob("*.pt*"), *folder.glob("*.safetensors")]
    places = list_checkpoints(folder) or runs or (files if len(files) == 1 else [])
    is_run = (folder / OVERRIDES).is_file()
    is_unfinished = is_run and not (folder / SUMMARY).exists()
    clause = f"has no {WEIGHTS}" if is_run else "is not a run folder"
    if is_unfinished:
        clause = "is a run that is not finished" + " and has no intact checkpoint" * (not places)
    if not places and (folder.parent / WEIGHTS).exists():
        places = [folder.parent]
    place = places[-1] if places else None
    fix = Value(shlex.quote(str(place))) if place else Hint("pass the folder of a finished run")
    if not is_run and any(folder.glob(f"*/{OVERRIDES}")):
        clause = "is a folder of runs, not a run"
    raise NotReadyError.at(folder, clause, fix)


def _replace_weights(path: Path) -> Fix:
    """Return the fix for a damaged file: in a run, its newest intact checkpoint."""
    for checkpoint in reversed(list_checkpoints(path.parent)):
        with suppress(NotReadyError):
            load(checkpoint)
            return Value(shlex.quote(str(checkpoint)))
    if (command := path.parent / COMMAND).exists():
        return Hint(f"copy the file again, or train again with the command in {command}")
    return DamagedError.fix[0]


def _load_checkpoint(content: Mapping[str, Any]) -> Network:
    """Return the network in a checkpoint, with the EMA weights if the recipe uses EMA."""
    methods = content.get("methods")
    classes = content.get("classes")
    recipe, problems = (
        build_recipe(content["recipe"]) if is_plain_recipe(content["recipe"]) else (None, True)
    )
    if (
        problems
        or not isinstance(methods, dict)
        or not isinstance(classes, list)
        or not all(type(name) is str for name in (*classes, *methods))
    ):
        raise ArchiveError("it is not a checkpoint of this version")
    averaged = {
        name.removeprefix("ema."): tensor
        for name, tensor in methods.items()
        if name.startswith("ema.")
    }
    state = _extract_state(averaged or content.get("model"))
    description = about.describe(recipe, tuple(classes), len(classes))
    return Network(_assemble(description, Stack.of(recipe.methods), state), description)


def _extract_state(content: object) -> dict[str, Tensor]:
    """Return the state dict in a file.

    timm and other libraries nest it one level deep, and DDP prefixes its names with `module.`.
    """
    if isinstance(content, dict):
        content = content.get("state_dict", content.get("model", content))
    if not isinstance(content, dict) or not all(type(name) is str for name in content):
        raise ArchiveError("it does not contain a network's weights")
    return {name.removeprefix("module."): tensor for name, tensor in content.items()}


def _count_outputs(state: Mapping[str, Any], classifier: str) -> int:
    head = state.get(f"{classifier}.weight")
    if not isinstance(head, Tensor) or head.ndim < 2 or not len(head):
        raise ArchiveError(f"it has no classifier of the name {classifier}.weight")
    return len(head)


def _recognize_resnet(state: Mapping[str, Any]) -> str:
    """Return the torchvision ResNet whose tensors have these names, or ""."""
    blocks = {tuple(name.split(".")[:2]) for name in state if name.startswith("layer")}
    sizes = Counter(stage for stage, _ in blocks)
    stages = tuple(sizes[f"layer{number}"] for number in range(1, 5))
    depths = "layer1.0.conv3.weight" in state, stages
    return next((name for name, network in NETWORKS.items() if network == depths), "")


def _assemble(
    description: NetworkDescription, methods: Stack, state: dict[str, Tensor]
) -> nn.Module:
    """Return the network with these weights. Raises ArchiveError if they do not fit it."""
    structure = description.architecture, description.num_classes, dict(description.arguments)
    model = backbones.build_structure(*structure)
    outputs = _count_outputs(state, backbones.find_classifier(model))
    if outputs != description.num_classes:
        raise ArchiveError(f"it has {outputs} outputs but {description.num_classes} classes")
    if misfits := [
        str(problem) for method in methods for problem in method.find_network_problems(model)
    ]:
        raise ArchiveError(f"its methods do not fit: {misfits[0]}")
    with torch.device("meta"):
        methods.modify_model(model)
    expected = model.state_dict()
    # files older than torch 0.4.1 do not have these counters
    counters = (name for name in expected if name.endswith("num_batches_tracked"))
    state = {name: torch.tensor(0) for name in counters} | state
    if odd := sorted(state.keys() ^ expected.keys()):
        tensors = f"{', '.join(odd[:3])} missing or unknown"
        raise ArchiveError(f"it is not {description.architecture}: {tensors}")
    for name, tensor in state.items():
        like = expected[name]
        if (
            not isinstance(tensor, Tensor)
            or tensor.shape != like.shape
            or tensor.is_floating_point() != like.is_floating_point()
        ):
            raise ArchiveError(f"{name} is not a tensor of shape {tuple(like.shape)}")
        if not tensor.isfinite().all():
            raise ArchiveError(f"{name} has values that are not finite numbers")
        if name.endswith("running_var") and (tensor < 0).any():
            raise ArchiveError(f"{name} has negative values, which no variance has")
        state[name] = tensor.to(like.dtype, copy=True)
    model.load_state_dict(state, assign=True)
    # files do not contain the buffers that the network computes
    if any(buffer.is_meta for buffer in model.buffers()):
        with torch.random.fork_rng(devices=[]):
            model = backbones.build(*structure)
        methods.modify_model(model)
        model.load_state_dict(state)
    fold(model)
    return model.eval().to(memory_format=torch.channels_last)
