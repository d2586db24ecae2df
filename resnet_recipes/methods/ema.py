"""An exponential moving average of the weights, for evaluation."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress

import torch
from torch import Tensor, nn

from resnet_recipes.base.duration import Duration, Horizon
from resnet_recipes.base.errors import Note
from resnet_recipes.base.limits import DurationOrZero, PositiveDuration
from resnet_recipes.base.names import DOCS
from resnet_recipes.base.text import format_count
from resnet_recipes.methods.base import Method, Now


@dataclass
class EMA(Method):
    """Evaluate a moving average of the weights (Polyak and Juditsky, 1992, doi:10.1137/0330046).

    The average starts as a copy after the first step. Every `update_interval`, it moves toward the
    weights by the fraction 1 - 2^(-update_interval / half_life): 0.129 with 20ba and 100ba. All
    floating-point parameters and buffers are averaged, including BatchNorm statistics; integers are
    copied (Composer averages and truncates them). For evaluation and export, the average replaces
    the weights in place. The training weights are then restored bit-identically.

    The torchvision references average differently; each difference is a setting. Until the first
    update after the warm-up, the average is a copy that each update refreshes (`delay`). It is also
    updated after the first step of every epoch, where the interval restarts (`each_epoch`). Its
    decay depends on the number of epochs (`half_life` in dur).
    """

    name = "ema"
    cost = (
        "one fused pass over the weights every `update_interval`; one copy of the model in memory, "
        "two during evaluations."
    )
    gain = (
        '+0.25 points in a 600-epoch baseline (PyTorch blog, "How to train state-of-the-art '
        "models using TorchVision's latest primitives\", 2021). Measured here: -0.2, not settled "
        "(-2.0 to 1.5), in 8 epochs of Mild on 20 classes of Tiny ImageNet "
        f"({DOCS}/lab/methods.html)."
    )
    avoid_when = (
        "`half_life`, in steps, comes from a recipe with another batch size, or the run has only a "
        "few hundred steps."
    )
    extra_weights = 1
    half_life: PositiveDuration = "100ba"  # time until the contribution of past weights has halved
    update_interval: PositiveDuration = "20ba"  # time between updates
    # time before averaging starts; until then the average is a copy
    delay: DurationOrZero = "0ba"
    # also update after each epoch's first step and restart update_interval there
    each_epoch: bool = False

    def __post_init__(self) -> None:
        self._average: dict[str, Tensor] = {}
        self._on_device = True

    @torch.no_grad()
    def after_step(self, model: nn.Module, now: Now) -> None:
        if not self._average:
            self._average = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            return
        interval, half_life, delay = (
            now.horizon.steps(Duration.parse(text))
            for text in (self.update_interval, self.half_life, self.delay)
        )
        since_update = self._steps_since_update(now, interval)
        if since_update is None:
            return
        is_copy = max(now.step - since_update, 0) < delay
        weight = 1.0 if is_copy else 1 - 2 ** -(interval / half_life)
        average, weights = self._pair_tensors(model)
        floats = [tensor.is_floating_point() for tensor in weights]
        integers = [not is_float for is_float in floats]
        torch._foreach_lerp_([*compress(average, floats)], [*compress(weights, floats)], weight)
        if any(integers):
            torch._foreach_copy_([*compress(average, integers)], [*compress(weights, integers)])

    def _steps_since_update(self, now: Now, interval: int) -> int | None:
        """Return the steps since the previous update; None if no update is due now."""
        if not self.each_epoch:
            return None if (now.step + 1) % interval else interval
        step_of_epoch = now.step % now.horizon.steps_per_epoch
        if step_of_epoch % interval:
            return None
        # in the previous epoch, updates were at steps 0, interval, 2 * interval ...
        return interval if step_of_epoch else (now.horizon.steps_per_epoch - 1) % interval + 1

    @contextmanager
    def eval_weights(self, model: nn.Module) -> Iterator[None]:
        """Give `model` the average, in place, and restore the weights on exit.

        Does nothing before the first step.
        """
        if not self._average:
            yield
            return
        average, weights = self._pair_tensors(model)
        copies = [tensor.clone() for tensor in weights]
        with torch.no_grad():
            torch._foreach_copy_(weights, average)
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(weights, copies)

    def advice(self, horizon: Horizon, full_size: int, others: Collection[str]) -> Iterator[Note]:
        durations = [Duration.parse(text) for text in (self.half_life, self.update_interval)]
        half_life, interval = map(horizon.steps, durations)
        half_life_text, interval_text = (duration.to_words() for duration in durations)
        if max(half_life, interval) * 10 > horizon.total_steps:
            fitting = max(1, horizon.total_steps // 50)
            steps = format_count(horizon.total_steps, "step")
            yield Note(
                f"ema averages over too many steps (half-life {half_life_text}, updated every "
                f"{interval_text}) for a run of {steps}, so its weights will lag",
                f"methods.ema.half_life={fitting}ba "
                f"methods.ema.update_interval={max(1, fitting // 5)}ba",
            )
        elif interval > half_life:
            yield Note(
                f"ema is updated every {interval_text} with a half-life of {half_life_text}, so "
                "its average is little more than the latest weights"
            )

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._average)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._average = {name: tensor.clone() for name, tensor in state.items()}
        self._on_device = False

    def _pair_tensors(self, model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
        """Return the tensors of the average and of `model`, in the same order."""
        weights = model.state_dict()
        if weights.keys() != self._average.keys():
            raise ValueError(
                "the average does not fit the model: "
                f"{sorted(weights.keys() ^ self._average.keys())[:4]}"
            )
        # loaded from a checkpoint: use the weights' device and memory format
        if not self._on_device:
            loaded = self._average
            self._average = {
                name: torch.empty_like(tensor).copy_(loaded[name])
                for name, tensor in weights.items()
            }
            self._on_device = True
        return [self._average[name] for name in weights], list(weights.values())
