"""What the publishers of weights say of the images that they are for."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torchvision

from resnet_recipes import backbones

#: data.fit, by timm's crop_mode; its other one, center, is crop.
_FITS = {"border": "pad", "squash": "squash"}


def images_of(name: str, weights: str = "") -> dict[str, Any]:
    """Return the fields of About that a network's library states of its images.

    `weights` is what is opened: torchvision, torchvision:NAME, timm:NETWORK.TAG or a file, whose
    name may be torchvision's. Any other file is taken for the first weights of the network.
    """
    source, _, tag = weights.partition(":")
    if source == "timm" or backbones.from_library(name) == "timm":
        facts = _tagged(tag if source == "timm" else name.partition(":")[2])
        return _of_timm(facts) if facts else {}
    try:
        members = torchvision.models.get_model_weights(name.rpartition(":")[2])
    except ValueError:  # no such network
        return {}
    chosen = next(iter(members))
    if source == "torchvision":
        chosen = members.__members__.get(tag, members.DEFAULT)
    else:
        named = (one for one in members if Path(one.url).name == Path(weights).name)
        chosen = next(named, chosen)
    known = chosen.transforms()
    sizes = known.resize_size[0], known.crop_size[0]
    return _fields(known.mean, known.std, known.interpolation.value, *sizes)


def levels(name: str) -> tuple[object, object]:
    """Return the mean and deviation that a network's library states."""
    stated = images_of(name)
    return stated.get("mean"), stated.get("std")


def tag_of(name: str) -> str:
    """Return timm's name of a network's default weights, NETWORK.TAG; "" if it has none."""
    facts = _tagged(name)
    return f"{name}.{facts['tag']}" if facts.get("tag") else ""


def _tagged(name: str) -> Mapping[str, Any]:
    """Return what timm knows of weights NETWORK.TAG; nothing if they are newer than it."""
    if not find_spec("timm"):
        return {}
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
