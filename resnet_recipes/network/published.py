"""What the publishers of weights say of the images that they are for."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import torchvision

from resnet_recipes import backbones
from resnet_recipes.base.architecture import ModelConfig
from resnet_recipes.network.load import Network

#: data.fit, by timm's crop_mode; its other one, center, is crop.
_FITS = {"border": "pad", "squash": "squash"}


def images_of(config: ModelConfig, network: Network) -> dict[str, Any]:
    """Return the fields of About that say for which images weights are that do not say it.

    A library says so of its weights, or of the network if they are in a file.
    """
    source, _, name = config.weights.partition(":")
    if not network.note:
        return {}
    if source == "torchvision":
        members = torchvision.models.get_model_weights(config.name.rpartition(":")[2])
        known = (members[name] if name else members.DEFAULT).transforms()
        interpolation = known.interpolation.value
        return _fields(
            known.mean, known.std, interpolation, known.resize_size[0], known.crop_size[0]
        )
    facts = backbones.facts(network.model)
    if source == "timm" and find_spec("timm"):
        facts = _tagged(name) or facts
    return _of_timm(facts) if facts else {}


def _tagged(name: str) -> Mapping[str, Any]:
    """Return what timm knows of weights NETWORK.TAG; nothing if they are newer than it."""
    import timm

    with suppress(RuntimeError):
        if found := timm.get_pretrained_cfg(name):
            return found.to_dict()
    return {}


def _of_timm(facts: Mapping[str, Any]) -> dict[str, Any]:
    side = facts["input_size"][1]
    resize = math.floor(side / facts["crop_pct"])
    fields = _fields(facts["mean"], facts["std"], facts["interpolation"], resize, side)
    return fields | {"fit": _FITS.get(facts.get("crop_mode", "center"), "crop")}


def _fields(
    mean: Sequence[float], std: Sequence[float], interpolation: str, resize: int, size: int
) -> dict[str, Any]:
    return {
        "mean": tuple(round(255 * value, 4) for value in mean),
        "std": tuple(round(255 * value, 4) for value in std),
        "eval_resize": resize,
        "eval_size": size,
        "eval_interpolation": interpolation,
    }
