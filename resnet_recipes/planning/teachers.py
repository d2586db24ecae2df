"""The trained networks that methods of a recipe learn from."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from resnet_recipes.base.architecture import ModelConfig
from resnet_recipes.base.errors import Hint, NotReadyError, RecipeError
from resnet_recipes.estimating.network import NetworkFacts as NetworkFacts
from resnet_recipes.estimating.network import Teacher, network_of
from resnet_recipes.methods.base import Method
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.weights import compute_digest
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.stored import stored

if TYPE_CHECKING:  # it imports torchvision, which takes seconds
    from resnet_recipes.network.load import Network


def with_teachers(plan: Plan) -> Plan:
    """Return the plan with its teachers counted. Raises RecipeError or NotReadyError."""
    found = [stored(plan, method) for method in plan.new_stack() if _has_outputs(method)]
    for method, network in teachers(plan):
        about, (key, place) = network.about, _named(method)
        config = ModelConfig(about.architecture, dict(about.arguments))
        facts = network_of(config, about.num_classes, about.methods())
        if rule := _misfit(network, facts, plan):
            raise RecipeError.of(key, place, rule, Hint("another teacher"))
        text = f"{about.architecture}, {facts.parameters:,} parameters, from {place}"
        found.append(Teacher(facts, text, key, _digest(network)))
    return replace(plan, teachers=tuple(found)) if found else plan


def teachers(plan: Plan, methods: Stack | None = None) -> Iterator[tuple[Method, "Network"]]:
    """Yield every method of a plan that needs a trained network, with that network, on the CPU.

    Raises RecipeError if none is named, NotReadyError if it cannot be read, or is not the one that
    the plan has counted.
    """
    counted = {teacher.key: teacher.digest for teacher in plan.teachers}
    for method in methods or plan.new_stack():
        if not method.network_setting or _has_outputs(method):
            continue
        key, place = _named(method)
        if not place:
            fix = Hint(f"{key}=runs/NAME, a file, timm:NAME or hf:USER/NAME")
            raise RecipeError.of(key, None, "is not set: a trained network", fix)
        from resnet_recipes.network.open import open_network

        try:
            network = open_network(place)
        except NotReadyError as error:
            found = error.of_place(key, place).elsewhere("model.weights", key)
            raise _described_first(found, place) from None
        if key in counted and counted[key] != _digest(network):
            rule = "was replaced after it was checked"
            raise NotReadyError.of(key, place, rule, "run the same command again")
        yield method, network


def _described_first(error: NotReadyError, place: str) -> NotReadyError:
    """Return the error of a teacher whose file does not describe it, with how to describe it.

    model.name, which the file alone needs, is the student's in a recipe.
    """
    (problem,) = error.problems
    if not any(each.startswith("model.name=") for each in problem.advice):
        return error
    export = f"resnet-recipes export {shlex.quote(place)} {{}} --to safetensors --out teacher"
    found = tuple(export.format(name) for name in problem.fixes)
    about = "teacher/model.safetensors, which describes its network"
    hint = Hint(f"{'it' if found else export.format('model.name=timm:NAME')} writes {about}")
    return NotReadyError([problem._replace(fix=(*found, hint))])


def _misfit(network: "Network", facts: NetworkFacts, plan: Plan) -> str:
    """Return why a network cannot teach that of a plan, or ""."""
    about, classes, side = network.about, plan.facts.classes, max(plan.sizes)
    if about.num_classes != plan.num_classes:
        return f"has {about.num_classes:,} classes, but the images have {plan.num_classes:,}"
    if about.classes and classes and about.classes != classes:
        other = next(pair for pair in zip(about.classes, classes, strict=True) if len({*pair}) > 1)
        return f"has other classes: {other[0]} where the images have {other[1]}"
    for problem in facts.size_problems(plan.sizes, side):
        return problem.about("")
    ramps = torch.linspace(-2, 2, 6 * side * side).view(2, 3, side, side)
    with torch.no_grad():
        is_finite = network.model(ramps).isfinite().all()
    return "" if is_finite else "gives outputs that are not finite numbers"


def _digest(network: "Network") -> str:
    """Return the digest of a network's weights and description."""
    return compute_digest(network.model.state_dict(), network.about.to_json())


def _has_outputs(method: Method) -> bool:
    """Return whether a method learns from stored outputs instead of a network."""
    return bool(getattr(method, method.stored_setting, ""))


def _named(method: Method) -> tuple[str, str]:
    """Return the setting that names a method's network, and its value."""
    key = method.network_setting
    return f"methods.{method.name}.{key}", getattr(method, key)
