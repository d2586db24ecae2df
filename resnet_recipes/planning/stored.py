"""Stored outputs of a teacher: which runs they belong to."""

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.base.text import byte_size
from resnet_recipes.data.base import Stored
from resnet_recipes.data.stored import AGAIN, read
from resnet_recipes.estimating.network import Teacher
from resnet_recipes.methods.base import Method
from resnet_recipes.planning.length import of_length
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.schema import enabled

#: What decides an image's pixels before the network sees them.
_PIXELS = (
    "train_size",
    "crop_scale",
    "crop_ratio",
    "crop_rule",
    "interpolation",
    "flip",
    "reduced_decode",
    "repeats",
)


def made_for(plan: Plan) -> dict[str, Any]:
    """Return all that a teacher's outputs depend on: settings by their keys, and facts."""
    data, recipe, facts = plan.recipe.data, plan.recipe, plan.facts
    found = {f"data.{key}": getattr(data, key) for key in _PIXELS}
    found["data.seed"] = recipe.seed if data.seed == "auto" else data.seed
    found["epochs"], found["sizes"] = ceil(plan.epochs), plan.sizes
    images = json.dumps([facts.train_digest, facts.classes, plan.num_classes])
    found["images"] = hashlib.sha256(images.encode()).hexdigest()
    for name, method in enabled(recipe.methods).items():
        if method.provides("augment_sample") or method.changes == "sizes":
            found[f"methods.{name}"] = asdict(method)
    return json.loads(json.dumps(found))


def cycled(plan: Plan, epochs: int) -> Plan:
    """Return a plan of these epochs of full-size crops, which runs of any length repeat in turn."""
    methods = plan.recipe.methods
    off = {name: None for name, one in enabled(methods).items() if one.changes == "sizes"}
    recipe = replace(plan.recipe, methods=type(methods)(**enabled(methods) | off))
    return of_length(replace(plan, recipe=recipe), Fraction(epochs))


def unstorable(plan: Plan) -> Iterator[Problem]:
    """Yield what changes the images in ways that belong to a batch, not to an image."""
    for method in plan.methods():
        if method.provides("transform_batch") and method.changes == "images":
            rule = "draws anew for each batch, after a stored teacher has seen the images"
            yield Problem(f"methods.{method.name}", None, rule, f"'~methods.{method.name}'")
    if plan.recipe.data.class_share:
        rule = "shows an image any number of times in an epoch; each needs an output of its own"
        yield Problem("data.sampling", plan.recipe.data.sampling, rule, "data.sampling=natural")
    if not plan.facts.augments_samples:
        rule = "has no images of their own, which a teacher could see"
        yield Problem("data.backend", plan.facts.backend, rule, "data=/path/to/images")


def stored(plan: Plan, method: Method) -> Teacher:
    """Return the stored outputs that a method learns from, read and compared with the run.

    Raises NotReadyError if the file is damaged, RecipeError with all that differs.
    """
    key = f"methods.{method.name}.{method.stored_setting}"
    path = Path(getattr(method, method.stored_setting))
    if not os.path.exists(path):  # unlike Path's, no error if its folder cannot be read
        fix = f"{key}=FILE   as resnet-recipes teach writes one"
        raise NotReadyError.of(key, path, "does not exist", fix)
    outputs, about = read(path)
    epochs = outputs.sha256.size // 32
    ours = made_for(cycled(plan, epochs) if about.repeats else plan)
    names = {f"methods.{name}" for name in vars(plan.recipe.methods)}
    if about.made.keys() - names != ours.keys() - names:
        raise NotReadyError.of(key, path, "has settings of another version", AGAIN)
    RecipeError.refuse([*unstorable(plan), *_differences(about.made, ours, key, path)])
    shape = epochs, plan.recipe.data.repeats, plan.facts.train_examples
    if fault := outputs.fault(shape, plan.num_classes):
        raise NotReadyError.of(key, path, fault, AGAIN)
    text = f"outputs of {about.teacher}, stored in {path}: {outputs.values.shape[-1]} of each "
    text += f"image, {byte_size(path.stat().st_size)}"
    if about.repeats:
        text += f"; crops repeat every {epochs} epochs, seen at full size"
    digest = hashlib.sha256(json.dumps(about).encode() + outputs.sha256.tobytes()).hexdigest()
    found = Stored(path, epochs, plan.num_classes, getattr(method, "temperature", 1.0))
    return Teacher(None, text, key, digest, found)


def _differences(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], key: str, path: Path
) -> Iterator[Problem]:
    """Yield a problem for each difference; sizes follow from settings, unless these are alike."""
    wrong = {name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)}
    for name in sorted(wrong):
        wanted = theirs.get(name)
        if name == "images" or wrong == {"sizes"}:
            yield Problem(key, path, f"was made for other {name}", AGAIN)
        elif wanted is None:
            yield Problem(name, ours[name], f"is off in {path}", f"'~{name}'")
        elif name != "sizes":
            text = json.dumps(wanted).replace('"', "").replace(" ", "")
            rule, fix = f"is {wanted} in {path}", f"{name}={shlex.quote(text)}"
            yield Problem(name, ours.get(name), rule, fix)
