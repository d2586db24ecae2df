"""The description of a network, stored in its weights file."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from resnet_recipes.base.errors import BrokenRuleError
from resnet_recipes.base.field_types import convert, get_field_types
from resnet_recipes.base.limits import Bounds, find_limit_problems
from resnet_recipes.base.model_config import LIBRARY, NETWORKS, ModelArguments
from resnet_recipes.base.reading import parse_json
from resnet_recipes.data.base import (
    MEAN,
    STD,
    DataConfig,
    Deviation,
    EvalInterpolation,
    ImageFit,
    Mean,
)
from resnet_recipes.data.imagenet import get_wordnet_ids
from resnet_recipes.methods import ORDER
from resnet_recipes.methods.stack import Stack
from resnet_recipes.recipe.schema import Recipe, get_enabled
from resnet_recipes.run_folder.metrics import Metrics

#: Version of these fields; files with another version are rejected.
FORMAT = 1

LICENSE = (
    "Chosen by the owner of the weights, subject to the license of the training images. "
    "resnet-recipes itself is Apache-2.0."
)

#: Methods that change the network. Without their modules, the weights give other outputs.
_IN_NETWORK = {method.name: method for method in ORDER if method.in_network}

_MAX_CHARACTERS = 1 << 24  # limit of a description
_MAX_ARGUMENT = 4096  # limit of a network's arguments, such as an image size or a width

#: Settings of evaluation images, which are fields of NetworkDescription and of DataConfig.
_IMAGE_SETTINGS = ("mean", "std", "eval_resize", "eval_size", "eval_interpolation", "fit")

#: Settings of a method, by name.
Settings = dict[str, int | float | bool | str]

NetworkSize = Annotated[int, Bounds(8, 4096)]  # pixels


@dataclass(frozen=True)
class NetworkDescription:
    """The description of a network: its architecture, classes, input images and accuracy."""

    architecture: str  # name of a torchvision ResNet, or library:name
    num_classes: Annotated[int, Bounds(1, 1 << 20)]
    classes: tuple[str, ...] = ()  # class names in label order; empty if unknown
    # settings of the methods in the network, by name
    method_settings: dict[str, Settings] = field(default_factory=dict)
    train_size: NetworkSize = 224  # pixels, size of the training crop
    eval_resize: NetworkSize = 256  # pixels, shorter side before the center crop
    eval_size: NetworkSize = 224  # pixels, size of the center crop
    eval_interpolation: EvalInterpolation = "bilinear"
    fit: ImageFit = "crop"  # see DataConfig
    mean: Mean = MEAN  # mean of red, green and blue, 0..255
    std: Deviation = STD
    flip: bool = False  # whether accuracy was measured with horizontal flips averaged
    recipe: str = ""
    epochs: float = 0.0
    top1_percent: float | None = None
    top5_percent: float | None = None
    loss: float | None = None
    # number of images used to measure the accuracy
    eval_examples: Annotated[int, Bounds(least=0)] = 0
    # number of evaluations that these weights were best of, which biases the accuracy; 0: one
    best_of: Annotated[int, Bounds(least=0)] = 0
    license: str = LICENSE
    arguments: ModelArguments = field(default_factory=dict)  # see backbones.build

    @property
    def title(self) -> str:
        """The name of the network, its arguments, and the methods that change it."""
        arguments = "".join(f" {key}={value}" for key, value in self.arguments.items())
        methods = "".join(f" + {name}" for name in self.method_settings)
        return self.architecture + arguments.replace("small_stem=True", "stem=small") + methods

    def methods(self) -> Stack:
        """Return the methods that change the network."""
        return Stack(
            {name: _IN_NETWORK[name](**settings) for name, settings in self.method_settings.items()}
        )

    def class_name(self, label: int) -> str:
        """Return the name of a class.

        If the names are unknown, the WordNet ID for 1,000 classes, else the number.
        """
        if self.classes:
            return self.classes[label]
        return get_wordnet_ids()[label] if self.num_classes == 1000 else str(label)

    def to_json(self) -> str:
        """Return all fields as one line of JSON; `from_json` returns an equal object."""
        return json.dumps({"format": FORMAT} | asdict(self))


def describe(
    recipe: Recipe,
    classes: tuple[str, ...],
    num_classes: int,
    epochs: float = 0.0,
    metrics: Metrics | None = None,
) -> NetworkDescription:
    """Return the description of a recipe's network, with its measured accuracy, if any."""
    methods = get_enabled(recipe.methods)
    data = recipe.data
    top1, top5, loss, examples, _ = metrics or (None, None, None, 0, None)
    return NetworkDescription(
        recipe.model.name,
        num_classes,
        tuple(classes) if len(classes) == num_classes else (),
        {name: asdict(methods[name]) for name in _IN_NETWORK if name in methods},
        data.train_size,
        **select_image_settings(data),
        flip=recipe.evaluation.flip,
        recipe=recipe.name,
        epochs=float(epochs),
        top1_percent=top1,
        top5_percent=top5,
        loss=loss,
        eval_examples=examples,
        arguments=recipe.model.arguments,
    )


def select_image_settings(source: NetworkDescription | DataConfig) -> dict[str, Any]:
    """Return the settings of evaluation images, by name."""
    return {name: getattr(source, name) for name in _IMAGE_SETTINGS}


def from_json(text: str) -> NetworkDescription:
    """Parse untrusted output of `to_json`.

    Raises ValueError, with a message for the user, if it is not valid.
    """
    try:
        content = parse_json(text) if len(text) <= _MAX_CHARACTERS else None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ValueError("its description of the network is not a JSON object")
    if content.pop("format", None) != FORMAT:
        raise ValueError("its description of the network has another format: update this program")
    field_types = get_field_types(NetworkDescription)
    if content.keys() != field_types.keys():
        raise ValueError("its description of the network has missing or unknown fields")
    values, invalid = {}, []
    for name, field_type in field_types.items():
        try:
            values[name] = _read_field(content[name], field_type)
        except BrokenRuleError:
            invalid.append(name)
    if not invalid:
        about = NetworkDescription(**values)
        invalid = list(_find_invalid_fields(about))
    if invalid:
        raise ValueError(
            f"its description of the network has invalid values of {', '.join(invalid)}"
        )
    if about.classes and len(about.classes) != about.num_classes:
        raise ValueError(
            f"it names {len(about.classes)} classes, but the network has {about.num_classes}"
        )
    return about


def _read_field(value: Any, field_type: Any) -> Any:
    """Return the value of a field; class names may have any characters."""
    if field_type == tuple[str, ...] and type(value) is list:
        return tuple(_read_field(item, str) for item in value)
    return value if field_type is str and type(value) is str else convert(value, field_type)


def _find_invalid_fields(about: NetworkDescription) -> Iterator[str]:
    """Yield fields whose values are invalid, or belong to a network too large for this machine."""
    yield from (problem.key for problem in find_limit_problems(about))
    if not (about.architecture in NETWORKS or LIBRARY.fullmatch(about.architecture)):
        yield "architecture"
    if not all(_is_method(*item) for item in about.method_settings.items()):
        yield "method_settings"
    if any(abs(value) > _MAX_ARGUMENT for value in about.arguments.values()):
        yield "arguments"


def _is_method(name: str, settings: Settings) -> bool:
    try:
        method = convert(settings, _IN_NETWORK[name])
    except (KeyError, BrokenRuleError):
        return False
    return asdict(method) == settings and not any(method.problems())
