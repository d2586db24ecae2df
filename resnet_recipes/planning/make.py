"""The only maker of a plan: from a recipe, facts about its images and a number of ranks."""

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.data.base import DataFacts
from resnet_recipes.estimating.network import NetworkFacts, network_of
from resnet_recipes.planning import feasible
from resnet_recipes.planning.plan import Plan, stack_of
from resnet_recipes.planning.teachers import with_teachers
from resnet_recipes.recipe.library import PROGRAM, Origin
from resnet_recipes.recipe.schema import Recipe


def make_plan(
    recipe: Recipe,
    facts: DataFacts,
    world_size: int,
    origin: Origin = PROGRAM,
    reads_teachers: bool = True,
    networks: dict[str, NetworkFacts] | None = None,
) -> Plan:
    """Derive the plan of a valid recipe.

    `reads_teachers` says whether networks and stored outputs that methods learn from are on this
    machine, to be read and counted. `networks` keeps what was counted of networks for the plans of
    other runs, by what they were built of. Raises RecipeError with everything that does not fit
    data and ranks, NotReadyError if a teacher cannot be read; no advice scales a value that was
    typed.
    """
    stack = stack_of(recipe, facts)
    problems = list(feasible.problems(recipe, facts, world_size, stack, origin.settings))
    wanted = recipe.model.num_classes
    num_classes = len(facts.classes) if wanted == "auto" else int(wanted)
    known = {} if networks is None else networks
    built_of = f"{recipe.model} {num_classes} {list(stack)}"
    try:
        network = known.get(built_of) or network_of(recipe.model, max(2, num_classes), stack)
    except RecipeError as error:
        raise type(error)([*problems, *error.problems]) from None
    known[built_of] = network
    RecipeError.refuse([*problems, *network.problems()])
    horizon = recipe.horizon(facts.train_examples)
    made = Plan(recipe, facts, world_size, num_classes, horizon, network, origin=origin)
    RecipeError.refuse(network.size_problems(made.sizes, recipe.data.eval_size))
    return with_teachers(made) if reads_teachers else made
