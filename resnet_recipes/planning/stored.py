"""Stored outputs of a teacher: which runs they belong to."""

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Any

from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.data.loading.stored import checked, described, located
from resnet_recipes.estimating.network import Teacher
from resnet_recipes.methods.base import Method
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


def made_for(plan: Plan, cycle: int = 0) -> dict[str, Any]:
    """Return all that a teacher's outputs depend on, by setting.

    With `cycle`, the same epochs of crops in turn, which the teacher sees at full size.
    """
    data, recipe = plan.recipe.data, plan.recipe
    found = {f"data.{key}": getattr(data, key) for key in _PIXELS}
    found["data.seed"] = recipe.seed if data.seed == "auto" else data.seed
    found["images"] = plan.facts.train_digest
    found["classes"] = hashlib.sha256(json.dumps(plan.facts.classes).encode()).hexdigest()
    found["cycle"], found["epochs"] = cycle, cycle or ceil(plan.epochs)
    found["sizes"] = [data.train_size] if cycle else list(plan.sizes)
    for name, method in enabled(recipe.methods).items():
        resizes = method.changes == "sizes" and not cycle
        if method.provides("augment_sample") or resizes:
            found[f"methods.{name}"] = {
                key: value for key, value in vars(method).items() if key[0] != "_"
            }
    return json.loads(json.dumps(found))


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
        fix = "resnet-recipes teach RECIPE ... writes one"
        raise NotReadyError.of(key, str(path), "does not exist", fix)
    about = described(path)
    ours = made_for(plan, about["made"].get("cycle", 0))
    if wrong := [*unstorable(plan), *_differences(about["made"], plan, ours, path)]:
        raise RecipeError(wrong)
    if about["shape"] != shape_of(plan, ours) or about["classes"] != plan.num_classes:
        raise NotReadyError.of(key, str(path), "has rows for other images")
    found = located(path, about, getattr(method, "temperature", 1.0))
    checked(found, about["sha256"])
    text = f"outputs of {about['teacher']}, stored in {path}: {found.kept} of each image, "
    text += f"{path.stat().st_size / 1e9:,.2f} GB"
    if ours["cycle"]:
        text += f"; crops repeat every {found.shape[0]} epochs, seen at full size"
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    return Teacher(None, text, key, digest, found)


def shape_of(plan: Plan, made: Mapping[str, Any]) -> list[int]:
    """Return the shape of a file of outputs: epochs, copies, images."""
    return [made["epochs"], plan.recipe.data.repeats, plan.facts.train_examples]


def _differences(
    theirs: Mapping[str, Any], plan: Plan, ours: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    """Yield a problem for each setting of the run that is not the file's."""
    for key in sorted({*theirs, *ours}):
        wanted, given = theirs.get(key), ours.get(key)
        if key not in ours and key.removeprefix("methods.") not in vars(plan.recipe.methods):
            fix = "write another: resnet-recipes teach ..."
            yield Problem("labels", str(path), "has settings of another version", fix)
            continue
        if wanted == given or (key == "sizes" and theirs.get("epochs") != ours["epochs"]):
            continue
        rule, fix = f"is {'off' if wanted is None else wanted} in {path}", f"{key}={_typed(wanted)}"
        if key in ("images", "classes", "sizes", "cycle"):
            rule, fix = f"differ from those of {path}", "write another: resnet-recipes teach ..."
            given = None
        elif wanted is None:
            fix = f"'~{key}'"
        name = "max_duration" if key == "epochs" else key
        yield Problem(name, given, rule, fix)


def _typed(value: Any) -> str:
    return shlex.quote(json.dumps(value).replace('"', "").replace(" ", ""))
