"""The image settings that publishers of weights state."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torchvision

from resnet_recipes import backbones

#: data.fit, by timm's crop_mode; timm's center is crop.
_FITS = {"border": "pad", "squash": "squash"}


def find_image_settings(name: str, weights: str = "") -> dict[str, Any]:
    """Return the fields of About that a network's library states of its images.

    `weights` is torchvision, torchvision:NAME, timm:NETWORK.TAG or a file, whose name may be
    torchvision's. Any other file is assumed to be the first weights of the network.
    """
    source, _, tag = weights.partition(":")
    if source == "timm" or backbones.get_library(name) == "timm":
        facts = _read_timm_config(tag if source == "timm" else name.partition(":")[2])
        return _convert_timm_config(facts) if facts else {}
    try:
        members = torchvision.models.get_model_weights(name.rpartition(":")[2])
    except ValueError:  # no such network
        return {}
    chosen = next(iter(members))
    if source == "torchvision":
        chosen = members.__members__.get(tag, members.DEFAULT)
    else:
        same_file = (one for one in members if Path(one.url).name == Path(weights).name)
        chosen = next(same_file, chosen)
    preset = chosen.transforms()
    sizes = preset.resize_size[0], preset.crop_size[0]
    return _make_fields(preset.mean, preset.std, preset.interpolation.value, *sizes)


def has_same_levels(name: str, other: str) -> bool:
    """Return whether libraries state the same mean and deviation for two networks."""
    ours, theirs = find_image_settings(name), find_image_settings(other)
    return all(ours.get(key) == theirs.get(key) for key in ("mean", "std"))


def find_default_tag(name: str) -> str:
    """Return timm's name of a network's default weights, NETWORK.TAG; "" if it has none."""
    facts = _read_timm_config(name)
    return f"{name}.{facts['tag']}" if facts.get("tag") else ""


def _read_timm_config(name: str) -> Mapping[str, Any]:
    """Return timm's configuration of weights NETWORK.TAG; empty if timm is older than they are."""
    if not find_spec("timm"):
        return {}
    import timm

    with suppress(RuntimeError):
        if config := timm.get_pretrained_cfg(name):
            return config.to_dict()
    return {}


def _convert_timm_config(facts: Mapping[str, Any]) -> dict[str, Any]:
    side = facts["input_size"][1]
    resize = math.floor(side / facts["crop_pct"])
    fields = _make_fields(facts["mean"], facts["std"], facts["interpolation"], resize, side)
    return fields | {"fit": _FITS.get(facts.get("crop_mode", "center"), "crop")}


def _make_fields(
    mean: Sequence[float], std: Sequence[float], interpolation: str, resize: int, size: int
) -> dict[str, Any]:
    return {
        "mean": tuple(round(255 * value, 4) for value in mean),
        "std": tuple(round(255 * value, 4) for value in std),
        "eval_resize": resize,
        "eval_size": size,
        "eval_interpolation": interpolation,
    }
