"""Stored outputs of a teacher: which runs they belong to."""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.base.text import byte_size
from resnet_recipes.data.base import Stored
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.stored import read
from resnet_recipes.estimating.network import Teacher
from resnet_recipes.methods.base import Method
from resnet_recipes.planning.length import of_length
from resnet_recipes.planning.plan import Plan
from resnet_recipes.recipe.schema import enabled
from resnet_recipes.recipe.typed import plain

_AGAIN = "write it again:  resnet-recipes teach NAME data=PATH methods.distill.teacher=T"


def made_for(plan: Plan, cycle: int) -> dict[str, Any]:
    """Return all that a teacher's outputs depend on: settings by their keys, and facts.

    `plan` is that of the cycle's epochs, if there is a cycle.
    """
    data, recipe, facts = plan.recipe.data, plan.recipe, plan.facts
    pixels = asdict(TrainCrop.of(data, plan.share(0)))
    pixels |= {key: getattr(data, key) for key in ("train_size", "reduced_decode", "repeats")}
    images = facts.train_digest, facts.classes, plan.num_classes, plan.sizes
    found = {f"data.{key}": value for key, value in pixels.items()}
    found["images"] = hashlib.sha256(repr(images).encode()).hexdigest()
    found |= {"epochs": len(plan.sizes), "cycle": cycle}
    for name, method in enabled(recipe.methods).items():
        if method.provides("augment_sample") or method.changes == "sizes":
            found[f"methods.{name}"] = asdict(method)
    return plain(found)


def cycled(plan: Plan, epochs: int) -> Plan:
    """Return a plan of these epochs of full-size crops, which runs of any length repeat in turn.

    With 0 epochs, the plan itself.
    """
    if not epochs:
        return plan
    methods = plan.recipe.methods
    off = {name: None for name, one in enabled(methods).items() if one.changes == "sizes"}
    recipe = replace(plan.recipe, methods=replace(methods, **off))
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

    Raises NotReadyError if the file cannot be used, RecipeError with all that differs.
    """
    key = f"methods.{method.name}.{method.stored_setting}"
    path = Path(getattr(method, method.stored_setting))
    try:
        outputs, teacher, made = read(path)
        epochs = outputs.sha256.size // 32
        cycle = made.get("cycle") and epochs
        ours = made_for(cycled(plan, cycle), cycle)
        names = {f"methods.{name}" for name in vars(plan.recipe.methods)}
        if made.keys() - names != ours.keys() - names:
            raise ValueError("it was made for settings of another version")
        RecipeError.refuse([*unstorable(plan), *_differences(made, ours, path)])
        if made != ours:
            raise ValueError("it was made for other images, or for other sizes of them")
        shape = epochs, plan.recipe.data.repeats, plan.facts.train_examples
        outputs.check(shape, plan.num_classes)
    except (OSError, ValueError) as error:
        rule = f"cannot be used: {getattr(error, 'strerror', None) or error}"
        raise NotReadyError.of(key, path, rule, _AGAIN) from None
    text = f"outputs of {teacher}, stored in {path}: {outputs.values.shape[-1]} of each "
    text += f"image, {byte_size(path.stat().st_size)}"
    if cycle:
        text += f"; crops repeat every {epochs} epochs, seen at full size"
    digest = hashlib.sha256(outputs.sha256.ravel()).hexdigest()
    found = Stored(path, epochs, plan.num_classes, getattr(method, "temperature", 1.0))
    return Teacher(None, text, key, digest, found)


def _differences(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    """Yield a problem for each setting that differs."""
    for name in sorted((theirs.keys() | ours.keys()) - {"images"}):
        rule, fix = f"is off in {path}", f"'~{name}'"
        if name in theirs:
            text = json.dumps(theirs[name]).replace('"', "").replace(" ", "")
            rule, fix = f"is {theirs[name]} in {path}", f"{name}={shlex.quote(text)}"
        if theirs.get(name) != ours.get(name):
            yield Problem(name, ours.get(name), rule, fix)
