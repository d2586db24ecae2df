"""The teachers of a plan: trained networks, or files of soft labels."""

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from resnet_recipes.base.errors import (
    Change,
    Command,
    Hint,
    Kind,
    NotReadyError,
    Problem,
    RecipeError,
    Statement,
)
from resnet_recipes.base.model_config import ModelConfig
from resnet_recipes.base.text import format_bytes, format_count
from resnet_recipes.data.base import SoftLabels
from resnet_recipes.data.soft_labels import FOREIGN_FILE_CLAUSE, TEACH_COMMAND, map_soft_labels
from resnet_recipes.methods.base import Method
from resnet_recipes.network.weights import compute_digest
from resnet_recipes.planning.network_facts import NetworkFacts, Teacher, make_network_facts
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.stable_phase import change_duration
from resnet_recipes.recipe.schema import get_enabled

if TYPE_CHECKING:
    from resnet_recipes.network.load import Network

#: `data` settings that determine the pixels before the network gets them.
_PIXEL_SETTINGS = (
    "train_size",
    "crop_scale",
    "crop_ratio",
    "crop_rule",
    "interpolation",
    "flip",
    "reduced_decode",
    "memory_pixels",
    "repeats",
)

#: Keys in a file that describe the teacher; runs that use its outputs do not depend on them.
_TEACHER_KEYS = ("teacher", "teacher.sha256", "precision.dtype", "launch.device")


def add_teachers(plan: Plan) -> Plan:
    """Return the plan with its teachers.

    Raises RecipeError if a teacher is missing or does not fit the run, NotReadyError if one cannot
    be read.
    """
    teachers = [
        read_soft_labels(plan, method) for method in plan.new_stack() if _has_soft_labels(method)
    ]
    for method, network in open_teachers(plan.new_stack()):
        about = network.about
        key, source = _get_network_setting(method)
        config = ModelConfig(about.architecture, dict(about.arguments))
        facts = make_network_facts(config, about.num_classes, about.methods())
        if clause := _find_teacher_misfit(network, facts, plan):
            hint = Hint(f"use a teacher that fits these {plan.num_classes:,} classes and images")
            raise RecipeError.of(key, source, clause, hint)
        text = f"{about.architecture}, {facts.parameters:,} parameters, from {source}"
        teachers.append(Teacher(facts, text, key, _compute_network_digest(network)))
    return replace(plan, teachers=tuple(teachers)) if teachers else plan


class OpenTeacher(NamedTuple):
    """A method that needs a trained network, and this network on the CPU."""

    method: Method
    network: "Network"


def open_teachers(
    methods: Iterable[Method], teachers: Sequence[Teacher] = ()
) -> Iterator[OpenTeacher]:
    """Yield the teachers of methods that compute their outputs in every step.

    Raises RecipeError if no network is named, NotReadyError if it cannot be read or differs from
    `teachers`, those of a plan.
    """
    digests = {teacher.key: teacher.digest for teacher in teachers}
    for method in methods:
        if not method.network_setting or _has_soft_labels(method):
            continue
        key, source = _get_network_setting(method)
        if not source:
            raise RecipeError([make_missing_teacher_problem(type(method))])
        from resnet_recipes.network.open import open_network

        try:
            network = open_network(source)
        except NotReadyError as error:
            problem = error.with_key(key, source).with_path_replaced("model.weights", key)
            raise _suggest_export(problem, source) from None
        if key in digests and digests[key] != _compute_network_digest(network):
            clause = "was replaced after it was checked"
            raise NotReadyError.of(key, source, clause, Hint("run the same command again"))
        yield OpenTeacher(method, network)


def make_missing_teacher_problem(method: type[Method]) -> Problem:
    """Return the problem of a method whose trained network the recipe does not name."""
    key = f"methods.{method.name}.{method.network_setting}"
    fix = Hint(f"{key}=runs/NAME, a file, timm:NAME or hf:USER/NAME")
    return Problem(key, None, "name a trained network", fix, kind=Kind.MISSING)


def _suggest_export(error: NotReadyError, source: str) -> NotReadyError:
    """Return the error for a teacher whose file does not describe it, with the command to fix it.

    In a recipe, model.name is the student network, so it cannot describe the file.
    """
    from resnet_recipes.network.load import NamingHint

    (problem,) = error.problems
    if not any(isinstance(line, NamingHint | Change) for line in problem.advice):
        return error
    export = f"resnet-recipes export {shlex.quote(source)} {{}} --to safetensors --out teacher"
    commands = tuple(Command(export.format(name)) for name in problem.corrections)
    about = "teacher/model.safetensors, which describes its network"
    hint = Hint(f"{'it' if commands else export.format('model.name=timm:NAME')} writes {about}")
    others = [line for line in problem.advice if commands and isinstance(line, Hint)]
    return NotReadyError([problem._replace(fix=(*commands, *others, hint))])


def _find_teacher_misfit(network: "Network", facts: NetworkFacts, plan: Plan) -> str:
    about = network.about
    classes = plan.facts.classes
    image_size = max(plan.image_sizes)
    if about.num_classes != plan.num_classes:
        return f"has {about.num_classes:,} classes, but the images have {plan.num_classes:,}"
    if about.classes and classes and about.classes != classes:
        other = next(pair for pair in zip(about.classes, classes, strict=True) if len({*pair}) > 1)
        return f"has other classes: {other[0]} where the images have {other[1]}"
    for problem in facts.size_problems(plan.image_sizes, image_size):
        return problem.about("")
    ramps = torch.linspace(-2, 2, 6 * image_size * image_size).view(2, 3, image_size, image_size)
    with torch.no_grad():
        is_finite = network.model(ramps).isfinite().all()
    return "" if is_finite else "gives outputs that are not finite numbers"


def _compute_network_digest(network: "Network") -> str:
    return compute_digest(network.model.state_dict(), network.about.to_json())


def _has_soft_labels(method: Method) -> bool:
    return bool(getattr(method, method.soft_labels_setting, ""))


def _get_network_setting(method: Method) -> tuple[str, str]:
    key = method.network_setting
    return f"methods.{method.name}.{key}", getattr(method, key)


def describe_file(plan: Plan, cycle: int, device: str) -> dict[str, str]:
    """Return everything that determines the contents of a file: teacher, dtype, device and images.

    `device` is the device type of the teacher.
    """
    teacher = plan.teachers[0]
    dtype = plan.recipe.precision.dtype
    values = teacher.text, teacher.digest, dtype, device
    return dict(zip(_TEACHER_KEYS, values, strict=True)) | describe_images(plan, cycle)


def describe_images(plan: Plan, cycle: int) -> dict[str, str]:
    """Return everything that teacher outputs depend on: settings as typed, and the images.

    Runs of any duration can use a stored cycle of epochs.
    """
    plan = make_cycle(plan, cycle)
    recipe, data, facts = plan.recipe, plan.recipe.data, plan.facts
    values = {f"data.{key}": getattr(data, key) for key in _PIXEL_SETTINGS}
    values["data.seed"] = recipe.seed if data.seed == "auto" else data.seed
    images = json.dumps([facts.train_digest, facts.classes, plan.num_classes, plan.image_sizes])
    values["images"] = hashlib.sha256(images.encode()).hexdigest()
    if not cycle:
        values["epochs"] = len(plan.image_sizes)
    for name, method in get_enabled(recipe.methods).items():
        if method.provides("augment_image") or method.changes == "sizes":
            values[f"methods.{name}"] = asdict(method)
    return {
        key: json.dumps(value).replace('"', "").replace(" ", "") for key, value in values.items()
    }


def make_cycle(plan: Plan, epochs: int) -> Plan:
    """Return a plan of `epochs` with full-size crops, a cycle that runs of any duration repeat.

    With 0 epochs, return the plan itself.
    """
    if not epochs:
        return plan
    methods = plan.recipe.methods
    fixed_size = {
        name: method for name, method in get_enabled(methods).items() if method.changes != "sizes"
    }
    recipe = replace(plan.recipe, methods=type(methods)(**fixed_size))
    return change_duration(replace(plan, recipe=recipe), Fraction(epochs))


def find_soft_label_problems(plan: Plan) -> Iterator[Problem]:
    """Yield the problems of settings that prevent storing outputs per image."""
    for method in plan.new_stack():
        if method.provides("transform_batch") and method.changes == "images":
            clause = (
                "changes the images of each batch, so that stored soft labels do not match them"
            )
            yield Problem(f"methods.{method.name}", None, clause, Change(f"~methods.{method.name}"))
    if plan.recipe.data.class_balance:
        clause = "may show an image several times per epoch, and each time needs its own output"
        fix = Change("data.sampling=natural")
        yield Problem("data.sampling", plan.recipe.data.sampling, clause, fix)
    if not plan.facts.augments_images:
        clause = "has no stored images that a teacher could see"
        yield Problem("data.backend", plan.facts.backend, clause, Change("data=/path/to/images"))


def read_soft_labels(plan: Plan, method: Method) -> Teacher:
    """Read the soft labels that a method uses, and compare their settings with the run.

    Raises NotReadyError if the file cannot be used, RecipeError if it does not suit the run.
    """
    key = f"methods.{method.name}.{method.soft_labels_setting}"
    path = Path(getattr(method, method.soft_labels_setting))
    try:
        arrays, description = map_soft_labels(path)
        if not description.keys() >= {*_TEACHER_KEYS}:
            raise ValueError(FOREIGN_FILE_CLAUSE)
        teacher, *_ = (description.pop(key) for key in _TEACHER_KEYS)
        epochs = arrays.sha256.size // 32
        cycle = 0 if "epochs" in description else epochs
        expected = describe_images(plan, cycle)
        methods = {f"methods.{name}" for name in vars(plan.recipe.methods)}
        if description.keys() - methods != expected.keys() - methods:
            raise ValueError(FOREIGN_FILE_CLAUSE)
        differences = _find_setting_problems(description, expected, path)
        RecipeError.raise_if_any([*find_soft_label_problems(plan), *differences])
        if description != expected:
            clause = "was made for other images or image sizes"
            raise RecipeError.of(key, path, clause, TEACH_COMMAND)
        shape = epochs, plan.recipe.data.repeats, plan.facts.train_examples
        arrays.check(shape, plan.num_classes)
    except (OSError, ValueError) as error:
        clause = f"cannot be used: {getattr(error, 'strerror', None) or error}"
        raise NotReadyError.of(key, path, clause, TEACH_COMMAND) from None
    text = f"outputs of {teacher}, stored in {path}: {arrays.values.shape[-1]} of each "
    text += f"image, {format_bytes(path.stat().st_size)}"
    if cycle:
        text += f"; crops repeat after {format_count(epochs, 'epoch')}, seen at full size"
    temperature = getattr(method, "temperature", 1.0)
    soft_labels = SoftLabels(path, arrays.checksum, epochs, plan.num_classes, temperature)
    return Teacher(None, text, key, arrays.checksum, soft_labels)


def _find_setting_problems(
    description: Mapping[str, str], expected: Mapping[str, str], path: Path
) -> Iterator[Problem]:
    for name in sorted({*description, *expected} - {"images"}):
        stored = description.get(name)
        value = expected.get(name)
        if stored != value:
            fix = Change(f"{name}={stored}" if stored else f"~{name}")
            clause = Statement(f"{path} was made {f'with {stored}' if stored else 'without it'}")
            yield Problem(name, value, clause, fix)
