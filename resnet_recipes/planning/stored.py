"""Stored outputs of a teacher: which runs they belong to."""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path

from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.base.text import byte_size, counted
from resnet_recipes.data.base import Stored
from resnet_recipes.data.stored import FOREIGN, WRITE, read
from resnet_recipes.estimating.network import Teacher
from resnet_recipes.methods.base import Method
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.trunk import of_length
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


#: What a file says of the teacher, on which the runs that learn from its outputs do not depend.
_TEACHER = ("teacher", "teacher.sha256", "precision.dtype", "launch.device")


def description(plan: Plan, cycle: int, device: str) -> dict[str, str]:
    """Return all that decides what a file has: the teacher, how it computes, and `made_for`.

    `device` is the type of those that the teacher runs on.
    """
    teacher, dtype = plan.teachers[0], plan.recipe.precision.dtype
    known = zip(_TEACHER, (teacher.text, teacher.digest, dtype, device), strict=True)
    return dict(known) | made_for(plan, cycle)


def made_for(plan: Plan, cycle: int) -> dict[str, str]:
    """Return all that a teacher's outputs depend on: settings as they are typed, and the images.

    If a cycle of epochs is stored, its runs may have any length.
    """
    plan = cycled(plan, cycle)
    recipe, data, facts = plan.recipe, plan.recipe.data, plan.facts
    found = {f"data.{key}": getattr(data, key) for key in _PIXELS}
    found["data.seed"] = recipe.seed if data.seed == "auto" else data.seed
    images = json.dumps([facts.train_digest, facts.classes, plan.num_classes, plan.sizes])
    found["images"] = hashlib.sha256(images.encode()).hexdigest()
    if not cycle:
        found["epochs"] = len(plan.sizes)
    for name, method in enabled(recipe.methods).items():
        if method.provides("augment_sample") or method.changes == "sizes":
            found[f"methods.{name}"] = asdict(method)
    return {
        key: json.dumps(value).replace('"', "").replace(" ", "") for key, value in found.items()
    }


def cycled(plan: Plan, epochs: int) -> Plan:
    """Return a plan of these epochs of full-size crops, which runs of any length repeat in turn.

    With 0 epochs, the plan itself.
    """
    if not epochs:
        return plan
    methods = plan.recipe.methods
    left = {name: one for name, one in enabled(methods).items() if one.changes != "sizes"}
    recipe = replace(plan.recipe, methods=type(methods)(**left))
    return of_length(replace(plan, recipe=recipe), Fraction(epochs))


def unstorable(plan: Plan) -> Iterator[Problem]:
    """Yield what changes the images in ways that belong to a batch, not to an image."""
    for method in plan.new_stack():
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
        outputs, made = read(path)
        if not made.keys() >= {*_TEACHER}:
            raise ValueError(FOREIGN)
        teacher, *_ = (made.pop(key) for key in _TEACHER)
        epochs = outputs.sha256.size // 32
        cycle = 0 if "epochs" in made else epochs
        ours = made_for(plan, cycle)
        methods = {f"methods.{name}" for name in vars(plan.recipe.methods)}
        if made.keys() - methods != ours.keys() - methods:
            raise ValueError(FOREIGN)
        RecipeError.refuse([*unstorable(plan), *_differences(made, ours, path)])
        if made != ours:
            rule = "was made for other images, or for other sizes of them"
            raise RecipeError.of(key, path, rule, WRITE)
        shape = epochs, plan.recipe.data.repeats, plan.facts.train_examples
        outputs.check(shape, plan.num_classes)
    except (OSError, ValueError) as error:
        rule = f"cannot be used: {getattr(error, 'strerror', None) or error}"
        raise NotReadyError.of(key, path, rule, WRITE) from None
    text = f"outputs of {teacher}, stored in {path}: {outputs.values.shape[-1]} of each "
    text += f"image, {byte_size(path.stat().st_size)}"
    if cycle:
        text += f"; crops repeat after {counted(epochs, 'epoch')}, seen at full size"
    temperature = getattr(method, "temperature", 1.0)
    found = Stored(path, outputs.checksum, epochs, plan.num_classes, temperature)
    return Teacher(None, text, key, outputs.checksum, found)


def _differences(
    theirs: Mapping[str, str], ours: Mapping[str, str], path: Path
) -> Iterator[Problem]:
    """Yield a problem for each setting that differs."""
    for name in sorted({*theirs, *ours} - {"images"}):
        text, own = theirs.get(name), ours.get(name)
        if text != own:
            fix = f"{name}={shlex.quote(text)}" if text else f"'~{name}'"
            yield Problem(name, own, f"is {text or 'off'} in {path}", fix)
