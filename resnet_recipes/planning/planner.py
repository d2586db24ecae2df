"""Make a plan, and find conflicts between a recipe, its data and its ranks."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from resnet_recipes.base.duration import MAX_EPOCHS, MAX_STEPS, Duration, Horizon
from resnet_recipes.base.errors import Change, Fix, Hint, NotReadyError, Problem, RecipeError, Value
from resnet_recipes.base.text import format_count
from resnet_recipes.data.base import DataFacts
from resnet_recipes.methods.stack import Stack
from resnet_recipes.planning.advice import MIN_RANK_SIZE, scale_batch
from resnet_recipes.planning.network_facts import make_network_facts
from resnet_recipes.planning.plan import IMAGENET_FACTS, Plan, make_stack
from resnet_recipes.planning.teachers import add_teachers
from resnet_recipes.recipe.library import PYTHON_ORIGIN, Origin
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.sections import AUTO

#: Images per batch in the recipe finetune.
FINETUNE_SIZE = 16


def make_plan(
    recipe: Recipe,
    facts: DataFacts,
    world_size: int,
    origin: Origin = PYTHON_ORIGIN,
    reads_teachers: bool = True,
) -> Plan:
    """Derive the plan of a valid recipe.

    With `reads_teachers`, teacher networks and soft labels are read; they must be on this
    machine. Raises RecipeError if recipe, data and ranks conflict, NotReadyError if a library is
    not installed or a teacher cannot be read.
    """
    stack = make_stack(recipe, facts)
    problems = list(_find_plan_problems(recipe, facts, world_size, stack, origin))
    setting = recipe.model.num_classes
    num_classes = len(facts.classes) if setting == "auto" else int(setting)
    try:
        network = make_network_facts(recipe.model, max(2, num_classes), stack)
    except RecipeError as error:
        raise type(error)([*problems, *error.problems]) from None
    RecipeError.raise_if_any([*problems, *network.problems()])
    horizon = recipe.horizon(facts.train_examples)
    plan = Plan(recipe, facts, world_size, num_classes, horizon, network, origin=origin)
    RecipeError.raise_if_any(network.size_problems(plan.image_sizes, recipe.data.eval_size))
    return add_teachers(plan) if reads_teachers else plan


def find_dataset_problems(recipe: Recipe, origin: Origin) -> tuple[Problem, ...]:
    """Return the fewest conflicts of a recipe with datasets of several sizes; empty if one fits."""
    setting = recipe.model.num_classes
    conflicts = list[tuple[Problem, ...]]()
    classes = IMAGENET_FACTS.classes if setting == "auto" else ("",) * int(setting)
    facts = replace(IMAGENET_FACTS, backend="ffcv", classes=classes)
    # epochs of 1 to 100,000 steps; the last reach MAX_STEPS after MAX_EPOCHS
    sizes = (recipe.batch.global_size * 10**power for power in range(6))
    for size in (facts.train_examples, *sizes):
        try:
            make_plan(recipe, replace(facts, train_examples=size), 1, origin, reads_teachers=False)
        except NotReadyError:  # a library is not installed on this machine
            return ()
        except RecipeError as error:
            conflicts.append(error.problems)
        else:
            return ()
    return min(conflicts, key=len)


def _find_plan_problems(
    recipe: Recipe,
    facts: DataFacts,
    world_size: int,
    stack: Stack,
    origin: Origin,
) -> Iterator[Problem]:
    yield from _find_batch_problems(recipe, facts, world_size, origin)
    yield from _find_class_count_problems(recipe, facts)
    if recipe.data.order != "random" and recipe.data.root and facts.backend != "ffcv":
        clause = "works only with .beton files"
        yield Problem("data.order", recipe.data.order, clause, Value("random"))
    yield from (problem.under("methods") for problem in stack.problems())
    if recipe.batch.global_size <= facts.train_examples:
        yield from _find_duration_problems(recipe, facts.train_examples)


def _get_image_location(recipe: Recipe, facts: DataFacts) -> str:
    """Return the location of the images for the user: a URL, not its local copy."""
    return recipe.data.root or str(facts.root)


def _find_batch_problems(
    recipe: Recipe, facts: DataFacts, world_size: int, origin: Origin
) -> Iterator[Problem]:
    batch, size = recipe.batch, recipe.batch.global_size
    where = "" if "batch.global_size" in origin.settings else "in the recipe "
    if size > facts.train_examples:
        clause = (
            f"{where}is more than the {facts.train_examples:,} training images in "
            f"{_get_image_location(recipe, facts)}, so an epoch has no steps"
        )
        can_finetune = where and not recipe.model.weights and facts.train_examples >= FINETUNE_SIZE
        fix: Fix = (
            _suggest_batch(recipe, facts.train_examples, world_size, origin),
            Hint("recipe=finetune needs fewer images") if can_finetune else "",
        )
        if recipe.run.extends:
            fix = Hint("--extend requires the images of the run")
        yield Problem("batch.global_size", size, clause, fix)
    elif size % world_size:
        unit = world_size * batch.get_micro_batch_size(max(size // world_size, 1))
        lower = max(size - size % unit, unit)
        rule = f"{where}must be divisible by {world_size}, the number of devices"
        yield Problem("batch.global_size", size, rule, scale_batch(recipe, lower, origin))
    elif (rank_size := size // world_size) % (micro_batch := batch.get_micro_batch_size(rank_size)):
        divisor = max(n for n in range(1, micro_batch + 1) if rank_size % n == 0)
        devices = format_count(world_size, "device")
        clause = f"must divide the {rank_size} images of each device (bs={size} on {devices})"
        yield Problem("batch.bn_size", micro_batch, clause, Value(divisor))
    if batch.bn_size == AUTO and recipe.launch.device == "cpu":
        clause = "needs a GPU, and this run uses the CPU"
        yield Problem("batch.bn_size", AUTO, clause, Value("64"))


def _find_class_count_problems(recipe: Recipe, facts: DataFacts) -> Iterator[Problem]:
    count = len(facts.classes)
    setting = recipe.model.num_classes
    location = _get_image_location(recipe, facts)
    if setting not in ("auto", count):
        clause = f"does not match the {count} classes in {location}"
        yield Problem("model.num_classes", setting, clause, Value("auto"))
    elif count < 2:
        yield Problem("data.root", location, f"has {count} class; a classifier needs at least 2")


def _find_duration_problems(recipe: Recipe, examples: int) -> Iterator[Problem]:
    horizon = recipe.horizon(examples)
    if not horizon.total_steps:
        ratio = recipe.scale_schedule_ratio
        clause = f"{'' if ratio == 1 else f'times ssr={ratio} '}is less than one step"
        fix = tuple(_suggest_durations(recipe, examples))
        yield Problem("max_duration", recipe.max_duration, clause, fix)
        return
    if horizon.epochs > MAX_EPOCHS or horizon.total_steps > MAX_STEPS:
        clause = (
            f"is {horizon.total_steps:,} steps or {float(horizon.epochs):,.0f} epochs; "
            f"the maximum is {MAX_STEPS:,} steps and {MAX_EPOCHS:,} epochs"
        )
        yield Problem("max_duration", recipe.max_duration, clause)
        return
    warmup = horizon.steps(Duration.parse(recipe.schedule.warmup))
    if warmup >= horizon.total_steps and not recipe.launch.budget:  # a budget sets the duration
        steps, total = (format_count(n, "step") for n in (warmup, horizon.total_steps))
        clause = f"must be shorter than the run: it takes {steps}, and the run has {total}"
        epochs = int(horizon.epochs * warmup / horizon.total_steps) + 1
        fix = (_suggest_warmup(horizon), Hint(f"or a longer run: epochs={epochs}"))
        yield Problem("schedule.warmup", recipe.schedule.warmup, clause, fix)
    cooldown = horizon.steps(Duration.parse(recipe.schedule.cooldown))
    is_long = warmup < horizon.total_steps < warmup + cooldown
    if recipe.schedule.name == "wsd" and is_long:
        clause = f"and the warm-up take {warmup + cooldown:,} of {horizon.total_steps:,} steps"
        yield Problem("schedule.cooldown", recipe.schedule.cooldown, clause, Value("0.2dur"))
    milestones = recipe.milestones(horizon)
    if milestones != sorted(set(milestones)):
        yield Problem("schedule.milestones", recipe.schedule.milestones, "must increase")


def _suggest_durations(recipe: Recipe, examples: int) -> Iterator[str]:
    """Yield a number of epochs and a number of steps that suit the schedule of a recipe."""

    def is_valid(duration: str) -> bool:
        other = replace(recipe, max_duration=duration, scale_schedule_ratio=1.0)
        return not any(_find_duration_problems(other, examples))

    epochs = (number for number in range(1, 1000) if is_valid(f"{number}ep"))
    yield from (Change(f"epochs={number}") for number in islice(epochs, 1))
    if is_valid("100ba"):
        yield "max_duration=100ba ssr=1"


def _suggest_batch(recipe: Recipe, examples: int, world_size: int, origin: Origin) -> str:
    """Return the settings that adapt batch, learning rate and warm-up to a small dataset."""
    rank_size = max(examples // (8 * world_size), min(MIN_RANK_SIZE, examples // world_size)) or 1
    rank_size = 1 << (rank_size.bit_length() - 1)
    size = rank_size * world_size
    if size > examples and world_size > 1:
        return f"gpus=1 {_suggest_batch(recipe, examples, 1, origin)}"
    changes = [scale_batch(recipe, size, origin)]
    if rank_size % recipe.batch.get_micro_batch_size(rank_size):
        changes.append(f"batch.bn_size={rank_size}")
    horizon = replace(recipe, batch=replace(recipe.batch, global_size=size)).horizon(examples)
    if horizon.steps(Duration.parse(recipe.schedule.warmup)) >= horizon.total_steps:
        changes.append(_suggest_warmup(horizon))
    return " ".join(changes)


def _suggest_warmup(horizon: Horizon) -> Change:
    return Change(f"schedule.warmup={'0.1dur' if horizon.total_steps > 1 else '0ep'}")
