"""The description of a network, stored in its weights file."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from resnet_recipes.base.architecture import LIBRARY, NETWORKS, Arguments
from resnet_recipes.base.reading import parse_json
from resnet_recipes.data.normalize import MEAN, STD
from resnet_recipes.methods import ORDER
from resnet_recipes.methods.stack import Stack
from resnet_recipes.recipe.schema import Recipe, enabled
from resnet_recipes.run_folder.facts import Metrics

#: Version of these fields; files of newer versions are refused.
FORMAT = 1

LICENCE = (
    "The program is Apache-2.0. The weights belong to their owner, subject to the licence "
    "of the training images."
)

#: Methods that are part of the network: without their modules the weights compute something else.
_SURGERY = {method.name: method for method in ORDER if method.in_network}

_LARGEST = 1 << 24  # characters
_LARGEST_ARGUMENT = 4096  # of a network: its images' side, or its width


@dataclass(frozen=True)
class About:
    """A network: how to rebuild it, its outputs' meaning, its input, and its accuracy."""

    architecture: str  # a torchvision ResNet's name, or library:name
    num_classes: int
    classes: tuple[str, ...] = ()  # in label order; empty if unknown
    # settings of the methods in the network
    surgery: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    train_size: int = 224  # pixels, side of the training crop
    eval_resize: int = 256  # pixels, shorter side before the centre crop
    eval_size: int = 224  # pixels, side of the centre crop
    eval_interpolation: str = "bilinear"  # bilinear | bicubic
    mean: tuple[float, ...] = MEAN  # of red, green and blue, 0..255
    std: tuple[float, ...] = STD
    flip: bool = False  # accuracy was measured on each image and its mirror image
    recipe: str = ""
    epochs: float = 0.0
    top1_percent: float | None = None
    top5_percent: float | None = None
    loss: float | None = None
    eval_examples: int = 0  # number of images used to measure the accuracy
    licence: str = LICENCE
    arguments: Arguments = field(default_factory=dict)  # see backbones.build

    @property
    def title(self) -> str:
        """The network's name, what it is built with, and the methods that are part of it."""
        built = "".join(f" {key}={value}" for key, value in self.arguments.items())
        surgery = "".join(f" + {name}" for name in self.surgery)
        return self.architecture + built.replace("small_stem=True", "stem=small") + surgery

    @property
    def is_normalised_alike(self) -> bool:
        """Whether its images are normalised as this program's, to 2 of 255 grey levels."""
        pairs = zip((*self.mean, *self.std), (*MEAN, *STD), strict=True)
        return all(abs(one - other) <= 2 for one, other in pairs)

    def methods(self) -> Stack:
        """Return the methods that are part of the network."""
        return Stack({name: _SURGERY[name](**settings) for name, settings in self.surgery.items()})

    def class_name(self, label: int) -> str:
        """Return the name of a class, or its number if names are unknown."""
        return self.classes[label] if self.classes else str(label)

    def to_json(self) -> str:
        """Return all fields as one line of JSON; `from_json` returns an equal object."""
        return json.dumps({"format": FORMAT} | asdict(self))


def of(
    recipe: Recipe,
    classes: tuple[str, ...],
    num_classes: int,
    epochs: float = 0.0,
    metrics: Metrics | None = None,
) -> About:
    """Return the description of a recipe's network, with its measured accuracy, if any."""
    on, data = enabled(recipe.methods), recipe.data
    top1, top5, loss, examples, _ = metrics or (None, None, None, 0, None)
    return About(
        recipe.model.name,
        num_classes,
        tuple(classes) if len(classes) == num_classes else (),
        {name: asdict(on[name]) for name in _SURGERY if name in on},
        data.train_size,
        data.eval_resize,
        data.eval_size,
        data.eval_interpolation,
        flip=recipe.evaluation.flip,
        recipe=recipe.name,
        epochs=float(epochs),
        top1_percent=top1,
        top5_percent=top5,
        loss=loss,
        eval_examples=examples,
        arguments=recipe.model.arguments,
    )


def from_json(text: str) -> About:
    """Parse untrusted text written by `to_json`. Raises ValueError with a message for the user."""
    try:
        found = parse_json(text) if len(text) <= _LARGEST else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("its description of the network is not a JSON object")
    if found.pop("format", None) != FORMAT:
        raise ValueError(
            "its description of the network is from another version of this program: update it"
        )
    if found.keys() != {item.name for item in fields(About)}:
        raise ValueError("its description of the network has missing or unknown fields")
    if wrong := [name for name, value in found.items() if not _IS_RIGHT[name](value)]:
        raise ValueError(f"its description of the network has invalid values of {', '.join(wrong)}")
    about = About(**found | {name: tuple(found[name]) for name in ("classes", "mean", "std")})
    if about.classes and len(about.classes) != about.num_classes:
        raise ValueError(
            f"it names {len(about.classes)} classes, but the network has {about.num_classes}"
        )
    if (about.mean, about.std) != (MEAN, STD):
        raise ValueError("it needs images normalised differently from this program's")
    return about


def _is_small(value: Any) -> bool:
    """Return whether a value is a switch, or a number that makes no network huge."""
    return type(value) is bool or (type(value) in (int, float) and abs(value) <= _LARGEST_ARGUMENT)


def _is_method(name: str, settings: Any) -> bool:
    """Return whether `name` is a method of networks and `settings` are valid for it."""
    if name not in _SURGERY or type(settings) is not dict:
        return False
    known = vars(_SURGERY[name]())
    return (
        settings.keys() == known.keys()
        and all(type(settings[key]) is type(known[key]) for key in known)
        and not any(_SURGERY[name](**settings).problems())
    )


def _is_list(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and all(type(item) is kind for item in value)


def _is_whole(low: int, high: float) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


#: Whether the value of a field has the right type and is within its limits.
_IS_RIGHT: dict[str, Callable[[Any], bool]] = {
    "architecture": lambda value: (
        _is_text(value) and (value in NETWORKS or LIBRARY.fullmatch(value) is not None)
    ),
    "num_classes": _is_whole(1, 1 << 20),
    "classes": _is_list(str),
    "surgery": lambda value: (
        type(value) is dict and all(_is_method(*item) for item in value.items())
    ),
    **dict.fromkeys(("train_size", "eval_resize", "eval_size"), _is_whole(8, 4096)),
    "eval_interpolation": lambda value: value in ("bilinear", "bicubic"),
    **dict.fromkeys(("mean", "std"), _is_list(float)),
    "flip": lambda value: type(value) is bool,
    **dict.fromkeys(("recipe", "licence"), _is_text),
    "epochs": _is_finite,
    **dict.fromkeys(
        ("top1_percent", "top5_percent", "loss"), lambda value: value is None or _is_finite(value)
    ),
    "eval_examples": _is_whole(0, math.inf),
    "arguments": lambda value: type(value) is dict and all(map(_is_small, value.values())),
}
