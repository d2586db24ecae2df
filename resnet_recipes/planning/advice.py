"""Advice on a recipe: settings that work but may not be intended."""

from collections.abc import Iterator

from resnet_recipes.base.duration import Duration, Horizon
from resnet_recipes.base.errors import Note
from resnet_recipes.base.text import format_count, format_number
from resnet_recipes.methods.stack import Stack
from resnet_recipes.recipe.library import Origin
from resnet_recipes.recipe.schema import Recipe, get_enabled
from resnet_recipes.recipe.sections import AUTO

#: Minimum images per rank and step in advice: with fewer, BatchNorm statistics cost accuracy (Wu
#: and He, 2018, arXiv:1803.08494, table 2: 24.8% errors with 8 images, 23.7% with 16, 23.6% with
#: 32).
MIN_RANK_SIZE = 16


def advise(
    recipe: Recipe, stack: Stack, horizon: Horizon, rank_size: int, origin: Origin
) -> Iterator[Note]:
    """Yield a note for each setting that works but may not be intended.

    `stack` has the methods that act on the images of the recipe. `origin` has the settings that the
    user set, and the learning rate and batch size of the recipe's files.
    """
    for name in get_enabled(recipe.methods):
        if name not in stack.methods:
            yield Note(f"{name} is skipped: synthetic images are not augmented")
    yield from _advise_on_duration(recipe, horizon, recipe.batch.global_size // rank_size, origin)
    for method in stack:
        yield from method.advice(horizon, recipe.data.train_size, stack.methods.keys())
    yield from _advise_on_batch(recipe, rank_size)
    yield from _advise_on_lr(recipe, origin)
    optimizer = recipe.optimizer
    if "optimizer.name" in origin.settings and "optimizer.weight_decay" not in origin.settings:
        yield Note(
            f"optimizer.name keeps the recipe's other settings, such as "
            f"weight_decay={optimizer.weight_decay:g}; optimizer={optimizer.name} sets its own",
            f"optimizer={optimizer.name}",
        )
    if recipe.evaluation.sizes:
        yield Note(
            f"evaluation.sizes applies to `resnet-recipes eval`; during training, the test size is "
            f"data.eval_size={recipe.data.eval_size}"
        )


def _advise_on_duration(
    recipe: Recipe, horizon: Horizon, ranks: int, origin: Origin
) -> Iterator[Note]:
    warmup = horizon.steps(Duration.parse(recipe.schedule.warmup))
    if warmup * 2 > horizon.total_steps:
        percentage = f"{100 * warmup / horizon.total_steps:.0f}%"
        yield Note(
            f"the warm-up takes {percentage} of the run, because "
            f"schedule.warmup={recipe.schedule.warmup} does not shrink with the run",
            "schedule.warmup=0.1dur",
        )
    yield from _advise_on_milestones(recipe, horizon)
    size = max(recipe.batch.global_size * horizon.steps_per_epoch // 64, MIN_RANK_SIZE * ranks)
    if horizon.steps_per_epoch < 8 and size < recipe.batch.global_size:
        changes = scale_batch(recipe, size, origin)
        steps = format_count(horizon.steps_per_epoch, "step")
        yield Note(f"an epoch has only {steps}; a smaller batch gives more", changes)


def _advise_on_milestones(recipe: Recipe, horizon: Horizon) -> Iterator[Note]:
    milestones = recipe.milestones(horizon) if recipe.schedule.name == "multistep" else []
    late = [step for step in milestones if step >= horizon.total_steps]
    if late:
        count = len(milestones)
        even = ",".join(f"{(index + 1) / (count + 1):.3f}dur" for index in range(count))
        yield Note(
            f"the run ends before {len(late)} of its {format_count(count, 'milestone')}, so the "
            "learning rate falls less often",
            f"'schedule.milestones=[{even}]'",
        )


def scale_batch(recipe: Recipe, size: int, origin: Origin) -> str:
    """Return the settings of a batch of `size`, with its learning rate.

    A typed learning rate is for the batch size of this run, any other for the batch size in the
    recipe's files.
    """
    is_typed = "optimizer.lr" in origin.settings
    lr_batch_size = 0 if is_typed else origin.batch_size
    ratio = size / (lr_batch_size or recipe.batch.global_size)
    return f"bs={size} lr={recipe.optimizer.lr * ratio**recipe.optimizer.lr_power:.3g}"


def _advise_on_batch(recipe: Recipe, rank_size: int) -> Iterator[Note]:
    batch = recipe.batch
    if batch.bn_size == AUTO:
        yield Note(
            "batch.bn_size=auto finds the largest size that fits in GPU memory at the start; "
            f"this plan assumes {rank_size} images, the step of one device"
        )
    elif int(batch.bn_size) > rank_size and not recipe.model.freezes_statistics:
        yield Note(
            f"batch.bn_size={batch.bn_size} is more than the {rank_size} images of a step on each "
            f"device, so BatchNorm uses {rank_size}"
        )


def _advise_on_lr(recipe: Recipe, origin: Origin) -> Iterator[Note]:
    """Compare the learning rate with that of the recipe's files, or else of the optimizer."""
    optimizer, size = recipe.optimizer, recipe.batch.global_size
    name, usual, usual_size = recipe.name, origin.lr, origin.batch_size
    if not (usual and usual_size) or {"optimizer", "optimizer.name"} & origin.settings.keys():
        if recipe.model.weights:  # the usual one assumes random weights
            return
        name, usual, usual_size = f"the optimizer {optimizer.name}", optimizer.usual_lr, 2048
    usual *= (size / usual_size) ** optimizer.lr_power
    ratio = optimizer.lr / usual
    if ratio > 5 or (ratio < 0.2 and not recipe.model.weights):
        yield Note(
            f"lr={optimizer.lr:g} is {format_number(ratio)} times the usual learning rate of "
            f"{name} for a batch of {size}",
            f"lr={usual:.3g}",
        )
