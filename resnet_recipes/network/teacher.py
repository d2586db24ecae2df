"""The trained networks that methods of a recipe learn from."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from resnet_recipes.base.architecture import ModelConfig
from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.estimating.network import Teacher, network_of
from resnet_recipes.methods.base import Batch, Method, Now
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.weights import digest
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.stored import stored

if TYPE_CHECKING:  # it imports torchvision, which takes seconds
    from resnet_recipes.network.load import Network


def taught(plan: Plan) -> Plan:
    """Return the plan with its teachers counted. Raises RecipeError or NotReadyError."""
    found = [stored(plan, method) for method in plan.methods() if _outputs(method)]
    for method, network in teachers(plan):
        about, place = network.about, getattr(method, method.network_setting)
        config = ModelConfig(about.architecture, weights=place, freeze="backbone")
        config.args = dict(about.arguments)
        facts = network_of(config, about.num_classes, about.methods())
        for problem in facts.size_problems(set(plan.sizes), max(plan.sizes)):
            raise RecipeError.of(_key(method), place, problem.rule, "another teacher")
        if not _is_finite(method, network, plan):
            rule = "gives outputs that are not finite numbers, or too large for a loss"
            raise RecipeError.of(_key(method), place, rule, "another teacher")
        text = f"{about.architecture}, {facts.parameters:,} parameters, from {place}"
        known = digest(network.model.state_dict(), about.to_json())
        found.append(Teacher(facts, text, _key(method), known))
    return replace(plan, teachers=tuple(found)) if found else plan


def teachers(plan: Plan, methods: Stack | None = None) -> Iterator[tuple[Method, "Network"]]:
    """Yield every method of a plan that needs a trained network, with that network, on the CPU.

    Raises RecipeError if there is none or it has other classes, NotReadyError if it cannot be read.
    """
    for method in methods or plan.methods():
        if not method.network_setting or _outputs(method):
            continue
        key, place = _key(method), getattr(method, method.network_setting)
        if not place:
            fix = f"{key}=runs/NAME, a file, timm:NAME or hf:USER/NAME"
            raise RecipeError.of(key, None, "is not set: a trained network", fix)
        from resnet_recipes.network import pretrained

        try:
            network = pretrained.named(place)
        except NotReadyError as error:
            raise NotReadyError(
                Problem(key, place, problem.rule, problem.fix.replace("model.weights=", f"{key}="))
                for problem in error.problems
            ) from None
        if rule := _misfit(network, plan):
            raise RecipeError.of(key, place, rule)
        yield method, network


def _misfit(network: "Network", plan: Plan) -> str:
    """Return why a network cannot teach that of a plan, or ""."""
    about, classes = network.about, plan.facts.classes
    if about.num_classes != plan.num_classes:
        return f"has {about.num_classes:,} classes, but the images have {plan.num_classes:,}"
    if about.classes and classes and tuple(about.classes) != tuple(classes):
        other = next(pair for pair in zip(about.classes, classes, strict=True) if len({*pair}) > 1)
        return f"has other classes: {other[0]} where the images have {other[1]}"
    if not about.is_normalised_alike:
        return "needs images normalised differently from this program's"
    return ""


@torch.no_grad()
def _is_finite(method: Method, network: "Network", plan: Plan) -> bool:
    """Return whether a method and its network give finite losses for two grey ramps."""
    side, classes = max(plan.sizes), plan.num_classes
    images = torch.linspace(-2, 2, 6 * side * side).view(2, 3, side, side)
    batch = Batch.of(images, torch.zeros(2, dtype=torch.int64), classes)
    now = Now.at(0, plan.total_steps, plan.steps_per_epoch)
    method.take_network(network.model)
    batch = method.transform_batch(batch, now)
    losses = method.change_loss(torch.zeros(2), torch.zeros(2, classes), batch)
    return bool(losses.isfinite().all())


def _outputs(method: Method) -> str:
    """Return the file of stored outputs that a method learns from, or ""."""
    return getattr(method, method.stored_setting) if method.stored_setting else ""


def _key(method: Method) -> str:
    return f"methods.{method.name}.{method.network_setting}"
