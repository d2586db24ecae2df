"""Advice on a recipe: what pays off and when, as its authors found."""

from collections.abc import Collection, Iterator
from fractions import Fraction
from math import ceil

from resnet_recipes.base.duration import Duration, Horizon
from resnet_recipes.recipe.schema import Recipe, enabled

#: Peak learning rate per example of the batch in the published recipes: 2.048 for a batch of 2048.
RATE_PER_EXAMPLE = 0.001


def notes_on(
    recipe: Recipe, horizon: Horizon, rank_size: int, typed: Collection[str] = ()
) -> Iterator[str]:
    """Yield one sentence for each setting that works but may not be what the user wants."""
    yield from _length_notes(recipe, horizon, typed)
    yield from _method_notes(recipe, horizon)
    yield from _ema_notes(recipe, horizon)
    yield from _batch_notes(recipe, rank_size)
    if recipe.evaluation.sizes:
        yield (
            f"evaluation.sizes is for `resnet-recipes eval`: during training, the test size is "
            f"data.eval_size={recipe.data.eval_size}."
        )


def _length_notes(recipe: Recipe, horizon: Horizon, typed: Collection[str]) -> Iterator[str]:
    warmup = horizon.steps(Duration.parse(recipe.schedule.warmup))
    if warmup * 2 > horizon.total_steps:
        share = f"{100 * warmup / horizon.total_steps:.0f} %"
        yield (
            f"The warm-up takes {share} of the run ({recipe.schedule.warmup}, never stretched); "
            "schedule.warmup=0.1dur leaves more time at useful rates."
        )
    if horizon.steps_per_epoch < 8 <= recipe.batch.global_size // 8:
        size = recipe.batch.global_size * horizon.steps_per_epoch // 64
        words = " ".join([f"bs={size}", *scaled_rate(recipe, size, typed)])
        steps = "1 step" if horizon.steps_per_epoch == 1 else f"{horizon.steps_per_epoch} steps"
        yield f"An epoch has only {steps}; a smaller batch gives more: {words}."


def scaled_rate(recipe: Recipe, size: int, typed: Collection[str]) -> list[str]:
    """Return what sets the learning rate for a batch of `size`; nothing if the user has typed one."""
    rate = recipe.optimizer.lr * size / recipe.batch.global_size
    return [] if "optimizer.lr" in typed else [f"lr={rate:.3g}"]


def _method_notes(recipe: Recipe, horizon: Horizon) -> Iterator[str]:
    methods, epochs = enabled(recipe.methods), horizon.epochs
    if {"mixup", "label_smoothing"} <= methods.keys() and epochs < 60:
        yield (
            "mixup together with label_smoothing costs accuracy in runs under 60 epochs (75.9 "
            "instead of 76.3 % at "
            "30 epochs on ImageNet); consider ~methods.mixup."
        )
    if {"randaugment", "stochastic_depth"} <= methods.keys() and epochs < 240:
        yield (
            "Regularisation as strong as Hot's pays off only from 240 epochs (on ImageNet, 180 "
            "epochs reached "
            "79.9 %); recipe=medium is meant for 60 to 240 epochs."
        )
    if (sam := methods.get("sam")) and sam.interval < 10 and epochs < 240:
        yield (
            f"methods.sam.interval={sam.interval}: at 180 epochs of Hot, 10 gave the same "
            "accuracy in 7 % less time."
        )
    if resizing := methods.get("progressive_resizing"):
        full = recipe.data.train_size
        last = resizing.size_at(
            full, Fraction((ceil(epochs) - 1) * horizon.steps_per_epoch, horizon.total_steps)
        )
        if last < full:
            share = Duration.parse(resizing.finetune).value
            enough = (
                f"epochs={ceil(1 / share)}"
                if share
                else "methods.progressive_resizing.finetune=0.2dur"
            )
            yield (
                f"progressive_resizing never reaches full size ({last} of {full} pixels in the "
                "last epoch): "
                f"{enough}, or ~methods.progressive_resizing."
            )


def _ema_notes(recipe: Recipe, horizon: Horizon) -> Iterator[str]:
    if not (ema := enabled(recipe.methods).get("ema")):
        return
    half_life, interval = (
        horizon.steps(Duration.parse(text)) for text in (ema.half_life, ema.update_interval)
    )
    if max(half_life, interval) * 10 > horizon.total_steps:
        fitting = max(1, horizon.total_steps // 50)
        yield (
            f"methods.ema (half-life {ema.half_life}, updated every {ema.update_interval}) "
            "is slow for "
            f"{horizon.total_steps:,} steps: the averaged weights will trail behind; try "
            f"methods.ema.half_life={fitting}ba "
            f"methods.ema.update_interval={max(1, fitting // 5)}ba."
        )
    elif interval > half_life:
        yield (
            f"methods.ema is updated every {ema.update_interval} with a half-life of "
            f"{ema.half_life}: "
            "its average is little more than the latest weights."
        )


def _batch_notes(recipe: Recipe, rank_size: int) -> Iterator[str]:
    batch, rate = recipe.batch, recipe.optimizer.lr
    if batch.bn_size > rank_size:
        yield (
            f"batch.bn_size={batch.bn_size}, but each rank has {rank_size} examples per step, so "
            "BatchNorm uses "
            f"those {rank_size}."
        )
    scaled = RATE_PER_EXAMPLE * batch.global_size
    if not 0.2 <= rate / scaled <= 5:
        yield (
            f"lr={rate:g} is {rate / scaled:.2g} times what the published recipes use "
            "for a batch of "
            f"{batch.global_size} (linear scaling gives {scaled:.3g})."
        )
