"""Find the pretrained weights of a new run, and describe them for its plan."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from resnet_recipes.base.errors import Hint, Note, NotReadyError, RecipeError
from resnet_recipes.base.model_config import ModelConfig
from resnet_recipes.data.base import DataFacts
from resnet_recipes.planning.plan import InitialWeights
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.schema import Recipe

if TYPE_CHECKING:  # ranks never import Hydra
    from resnet_recipes.network.load import Network
    from resnet_recipes.recipe.compose import ComposedRecipe


def find_initial_weights(
    recipe: Recipe, facts: DataFacts, needs_weights: bool, network: "Network | None" = None
) -> InitialWeights | None:
    """Return the pretrained weights in a recipe, or None.

    `network` is their network, if it was opened. Without `needs_weights`, missing weights are only
    a note. Raises NotReadyError if they cannot be used.
    """
    if not recipe.model.weights:
        return None
    from resnet_recipes.network import pretrained
    from resnet_recipes.network.open import AbsentError

    try:
        start = pretrained.find_weights(recipe.model, facts.classes, network)
    except AbsentError as error:
        if needs_weights:
            raise
        note = Note("the initial weights are not on this machine", error.problems[0].corrections[0])
        frozen = tuple(pretrained.describe_frozen(recipe.model))
        return InitialWeights(recipe.model.weights, details=frozen, notes=(note,), is_absent=True)
    except NotReadyError as error:
        complete = partial(_complete_network, recipe=recipe, facts=facts)
        raise type(error)(
            problem._replace(fix=tuple(map(complete, problem.advice))) for problem in error.problems
        ) from None
    methods = start.network.about.method_settings
    return InitialWeights(
        str(start.network.path or recipe.model.weights),
        details=tuple(start.iterate_details(recipe.model)),
        methods=tuple((name, getattr(recipe.methods, name) is not None) for name in methods),
        notes=tuple(map(Note, start.iterate_notes(recipe.model, recipe.data))),
    )


def _complete_network(advice: str, recipe: Recipe, facts: DataFacts) -> str:
    """Return advice; if it selects another network, with changes of unsupported settings."""
    if isinstance(advice, Hint) or not advice.startswith("model.name="):
        return advice
    model = ModelConfig(advice.split()[0].removeprefix("model.name="))
    try:
        make_plan(replace(recipe, model=model), facts, 1, reads_teachers=False)
    except RecipeError as error:
        changes = [
            wrong.format_fix(fix) for wrong in error.problems for fix in wrong.corrections[:1]
        ]
        return " ".join([advice, *changes])
    return advice


def adopt_network(
    result: "ComposedRecipe", networks: "dict[str, Network] | None" = None
) -> "ComposedRecipe":
    """Return a recipe that keeps the methods and the normalization of its pretrained network.

    Arguments that set them, such as ~methods.NAME or data.mean=..., take precedence. A run
    downloads nothing, so the weights must be on this machine. `networks` keeps the network for
    other recipes.
    """
    recipe = result.recipe
    if not recipe.model.weights or recipe.run.extends:
        return result
    from resnet_recipes.network import pretrained

    networks = {} if networks is None else networks
    key = str((recipe.model.weights, recipe.model.name, recipe.model.arguments))
    try:
        # a plan needs no values, and a sweep may have hundreds of runs
        network = networks.get(key) or pretrained.open_weights(recipe.model).to("meta")
    except NotReadyError:
        return result  # the plan reports their problem
    networks[key] = network
    about = network.about
    if about.architecture != recipe.model.name:
        return result  # the plan reports this problem
    new_methods = {
        name: method
        for name, method in about.methods().methods.items()
        if getattr(recipe.methods, name) is None
        and not any(f"{key}.".startswith(f"methods.{name}.") for key in result.origin.settings)
    }
    methods: Any = recipe.methods
    settings = result.origin.settings
    normalization = {
        key: getattr(about, key) for key in ("mean", "std") if f"data.{key}" not in settings
    }
    return result._replace(
        recipe=replace(
            recipe,
            methods=replace(methods, **new_methods),
            data=replace(recipe.data, **normalization),
        ),
        network=network,
    )
