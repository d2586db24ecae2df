"""Find the image settings that libraries publish with their weights."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torchvision

from resnet_recipes import backbones

#: data.fit by crop_mode of timm. `center` in timm is `crop`.
_FITS = {"border": "pad", "squash": "squash"}


def find_image_settings(name: str, weights: str = "") -> dict[str, Any]:
    """Return the fields of NetworkDescription that a network's library publishes about its images.

    `weights` is torchvision, torchvision:NAME, timm:NETWORK.TAG or a file, which may have the name
    of a torchvision file. Any other file is assumed to be the first published weights of the
    network.
    """
    source, _, tag = weights.partition(":")
    if source == "timm" or backbones.get_library(name) == "timm":
        facts = _read_timm_config(tag if source == "timm" else name.partition(":")[2])
        return _convert_timm_config(facts) if facts else {}
    try:
        members = torchvision.models.get_model_weights(name.rpartition(":")[2])
    except ValueError:  # the network is unknown
        return {}
    chosen = next(iter(members))
    if source == "torchvision":
        chosen = members.__members__.get(tag, members.DEFAULT)
    else:
        same_file = (entry for entry in members if Path(entry.url).name == Path(weights).name)
        chosen = next(same_file, chosen)
    preset = chosen.transforms()
    sizes = preset.resize_size[0], preset.crop_size[0]
    return _make_fields(preset.mean, preset.std, preset.interpolation.value, *sizes)


def find_default_tag(name: str) -> str:
    """Return the timm name of a network's default weights, NETWORK.TAG; "" if it has none."""
    facts = _read_timm_config(name)
    has_weights = facts.get("tag") and (facts.get("hf_hub_id") or facts.get("url"))
    return f"{name}.{facts['tag']}" if has_weights else ""


def list_tags(name: str) -> list[str]:
    """Return the tags of all weights that timm has for a network; empty without timm."""
    if not find_spec("timm"):
        return []
    import timm

    return [full.partition(".")[2] for full in timm.list_pretrained(f"{name}.*")]


def _read_timm_config(name: str) -> Mapping[str, Any]:
    """Return the timm configuration of weights NETWORK.TAG; empty if timm lacks them."""
    if not find_spec("timm"):
        return {}
    import timm

    with suppress(RuntimeError):
        if config := timm.get_pretrained_cfg(name):
            return config.to_dict()
    return {}


def _convert_timm_config(facts: Mapping[str, Any]) -> dict[str, Any]:
    size = facts["input_size"][1]
    resize = math.floor(size / facts["crop_pct"])
    fields = _make_fields(facts["mean"], facts["std"], facts["interpolation"], resize, size)
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
