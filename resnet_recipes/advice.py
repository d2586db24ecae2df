"""Soft knowledge about recipes: what their authors found to pay, and when."""

from collections.abc import Iterator

from resnet_recipes.config import Recipe, enabled
from resnet_recipes.duration import Duration, Horizon

#: Peak learning rate for each example of the batch in the published recipes: 2.048 for 2048.
RATE_PER_EXAMPLE = 0.001


def notes_on(recipe: Recipe, horizon: Horizon, rank_size: int) -> Iterator[str]:
    """Yield one sentence for each thing that can run but that the user may not want."""
    yield from _length_notes(recipe, horizon)
    yield from _method_notes(recipe, horizon)
    yield from _batch_notes(recipe, rank_size)


def _length_notes(recipe: Recipe, horizon: Horizon) -> Iterator[str]:
    warmup = horizon.steps(Duration.parse(recipe.schedule.warmup))
    if warmup * 2 > horizon.total_steps:
        yield (f"The warm-up takes {100 * warmup / horizon.total_steps:.0f} % of the run ({recipe.schedule.warmup}, never stretched); "
               "schedule.warmup=0.1dur leaves more time at useful rates.")


def _method_notes(recipe: Recipe, horizon: Horizon) -> Iterator[str]:
    methods, epochs = enabled(recipe.methods), horizon.epochs
    if {"mixup", "label_smoothing"} <= methods.keys() and epochs < 60:
        yield ("mixup together with label_smoothing costs accuracy in runs under 60 epochs (75.9 instead of 76.3 % at 30 epochs on "
               "ImageNet); consider ~methods.mixup.")
    if {"randaugment", "stochastic_depth"} <= methods.keys() and epochs < 240:
        yield ("Regularisation as strong as Hot's pays from 240 epochs on (on ImageNet 180 epochs still reached 79.9 %); "
               "recipe=medium is meant for 60 to 240 epochs.")
    if (sam := methods.get("sam")) and sam.interval < 10 and epochs < 240:
        yield f"methods.sam.interval={sam.interval}: at 180 epochs of Hot, 10 gave the same accuracy in 7 % less time."
    if (ema := methods.get("ema")) and horizon.steps(Duration.parse(ema.half_life)) * 10 > horizon.total_steps:
        yield (f"methods.ema.half_life={ema.half_life} is long for {horizon.total_steps:,} steps: the averaged weights will trail "
               f"behind; try {max(1, horizon.total_steps // 50)}ba.")


def _batch_notes(recipe: Recipe, rank_size: int) -> Iterator[str]:
    batch, rate = recipe.batch, recipe.optimizer.lr
    if batch.bn_size > rank_size:
        yield f"batch.bn_size={batch.bn_size}, but each rank has {rank_size} examples a step: BatchNorm sees those {rank_size}."
    scaled = RATE_PER_EXAMPLE * batch.global_size
    if not 0.2 <= rate / scaled <= 5:
        yield (f"lr={rate:g} is {rate / scaled:.2g} times what the published recipes use for a batch of {batch.global_size} "
               f"(linear scaling gives {scaled:.3g}).")
