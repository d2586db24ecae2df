"""Images that grow during training."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import ceil
from typing import Annotated

import numpy as np
import torch.nn.functional as F

from resnet_recipes.base.duration import Duration, Horizon, is_duration, parse_fraction
from resnet_recipes.base.errors import (
    BrokenRuleError,
    Change,
    Hint,
    Note,
    Problem,
    Statement,
    Value,
)
from resnet_recipes.base.limits import Bounds, IsDuration, OneOf
from resnet_recipes.base.names import DOCS
from resnet_recipes.methods.base import Batch, Method, Now, select_pixels

_SCALE = Bounds(above=0, most=1)


@dataclass
class ProgressiveResizing(Method):
    """Start with small images and grow them (fast.ai, fastbook chapter 7; Composer 0.7.1).

    The scale is `initial_scale` until `delay`. It then rises linearly and is 1 for the last
    `finetune` of the run. Sizes are rounded to multiples of `size_increment`, half to even, without
    float errors. The size is constant within an epoch. In Mild, images are 88 px for 40% of the
    run. They then grow to 176 px at 80%. `stairs` sets your own scales instead, each with
    its start time, as in DAWNBench records: `[[0ep, 0.5], [0.6dur, 0.75], [35ep, 1.0]]`.

    `at: device` shrinks the normalized batch. "nearest" takes the pixel at floor(i * full / size);
    "crop" cuts the same window out of all images. With `at: loader`, the loader decodes at this
    size instead, with antialiasing, which saves CPU time.

    In Composer, a float error turns 120 of 176 pixels into 119, and 100 of 167 into 99. Its crop
    never uses the last offset.
    """

    name = "progressive_resizing"
    cost = "one resampling of the batch."
    gain = (
        "speed: 48% fewer pixels in the 36 epochs of Mild. On ImageNet, the effect on accuracy is "
        "limited (Composer, method card). Measured here: 54% less compute and -5.7 points, not "
        "settled (-16.1 to 4.6), in 8 epochs of Mild on 20 classes of Tiny ImageNet "
        f"({DOCS}/lab/methods.html)."
    )
    avoid_when = (
        "The loader is the bottleneck: small images then save no time. A run under 10 epochs sees "
        "few sizes. `mode: crop` was better for ResNet-56 on CIFAR-10 (Composer, method card)."
    )
    makes_steps_cheaper = True
    # resize: shrink the image | crop: cut a window out of it
    mode: Annotated[str, OneOf("resize", "crop")] = "resize"
    # size at the start, as a fraction of the full size
    initial_scale: Annotated[float, _SCALE] = 0.5
    delay: str = "0.5dur"  # duration at initial_scale
    finetune: str = "0.2dur"  # duration at full size, at the end
    # scales with their start times, which replace the three settings above; []: off
    stairs: list[tuple[str, float]] = field(default_factory=list)
    # pixels; all sizes except the full size are multiples of it
    size_increment: Annotated[int, Bounds(least=1)] = 4
    interpolation: Annotated[str, OneOf("nearest", "bilinear")] = "nearest"  # nearest | bilinear
    # device: resample the batch | loader: decode at this size
    at: Annotated[str, OneOf("device", "loader")] = "device"
    # point in an epoch that determines its size: start | end
    size_from_epoch: Annotated[str, OneOf("start", "end")] = "start"

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        for index, (start, scale) in enumerate(self.stairs):
            for value, limit in ((start, IsDuration(may_be_zero=True)), (scale, _SCALE)):
                if rule := limit.find_broken_rule(value):
                    yield Problem(f"stairs[{index}]", value, rule)
            if not index and is_duration(start) and Duration.parse(start).value:
                yield Problem("stairs[0]", start, "must start at 0ep")
        if self.at == "loader" and self.mode == "crop":
            clause = Statement("the loader can only resize")
            fix = Change("methods.progressive_resizing.mode=resize"), Value("device")
            yield Problem("at", self.at, clause, fix)
        fractions = []
        for key in ("delay", "finetune"):
            try:
                fractions.append(_parse_run_fraction(getattr(self, key)))
            except BrokenRuleError as error:
                yield Problem(key, getattr(self, key), error.clause)
        if len(fractions) == 2 and sum(fractions) >= 1:
            rule = f"delay and finetune ({self.finetune}) together must be less than 1dur"
            yield Problem("delay", self.delay, Statement(rule))

    @property
    def changes(self) -> str:  # type: ignore[override]
        """The images if windows are sampled for each batch, else their sizes."""
        return "images" if self.mode == "crop" else "sizes"

    def provides(self, hook: str) -> bool:
        return super().provides(hook) and not (hook == "transform_batch" and self.at == "loader")

    def loaded_size(self, image_size: int, epoch: int, horizon: Horizon) -> int:
        return self.size_in_epoch(image_size, epoch, horizon) if self.at == "loader" else image_size

    def size_after(self, image_size: int, epoch: int, horizon: Horizon) -> int:
        return self.size_in_epoch(image_size, epoch, horizon) if self.at == "device" else image_size

    def format_late_override(self, fraction: Fraction) -> str:
        key = f"methods.{self.name}"
        start = f"{float(1 - fraction):g}dur"
        if self.stairs:
            return f"'{key}.stairs=[[0ep,{self.initial_scale:g}],[{start},1.0]]'"
        return f"{key}.delay={start} {key}.finetune={float(fraction / 2):g}dur"

    def advice(self, horizon: Horizon, full_size: int, others: Collection[str]) -> Iterator[Note]:
        last = self.size_in_epoch(full_size, ceil(horizon.epochs) - 1, horizon)
        if last == full_size:
            return
        finetune = _parse_run_fraction(self.finetune)
        if self.stairs:
            fix: str = Hint("the last of its stairs has a scale below 1")
        elif finetune:
            fix = f"epochs={ceil(1 / finetune)}"
        else:
            fix = "methods.progressive_resizing.finetune=0.2dur"
        yield Note(
            f"progressive_resizing does not reach full size ({last} of {full_size} pixels in the "
            "last epoch)",
            (fix, "'~methods.progressive_resizing'"),
        )

    def suggest_faster_loading(self) -> str:
        return "methods.progressive_resizing.at=loader" if self.at == "device" else ""

    def size_in_epoch(self, full_size: int, epoch: int, horizon: Horizon) -> int:
        """Return the image size in pixels in an epoch, counted from 0; `full_size` is before it."""
        step = (epoch + (self.size_from_epoch == "end")) * horizon.steps_per_epoch
        scales = [
            scale for start, scale in self.stairs if horizon.steps(Duration.parse(start)) <= step
        ]
        if scales:
            return self._scale_size(full_size, parse_fraction(scales[-1]))
        return self.size_at_fraction(full_size, Fraction(step, horizon.total_steps))

    def size_at_fraction(self, full_size: int, elapsed: Fraction) -> int:
        """Return the image size in pixels after the fraction `elapsed` of a run without stairs."""
        delay = _parse_run_fraction(self.delay)
        finetune = _parse_run_fraction(self.finetune)
        initial = parse_fraction(self.initial_scale)
        if elapsed <= delay:
            return self._scale_size(full_size, initial)
        if elapsed >= 1 - finetune:
            return self._scale_size(full_size, Fraction(1))
        progress = (elapsed - delay) / (1 - finetune - delay)
        return self._scale_size(full_size, initial + (1 - initial) * progress)

    def _scale_size(self, full_size: int, scale: Fraction) -> int:
        # a Fraction: exact, half to even
        image_size = round(full_size * scale / self.size_increment) * self.size_increment
        return min(full_size, max(image_size, self.size_increment))

    def transform_batch(self, batch: Batch, now: Now) -> Batch:
        full_height, full_width = batch.images.shape[-2:]
        width = self.size_in_epoch(full_width, now.epoch, now.horizon)
        height = full_height * width // full_width
        if width == full_width:
            return batch
        if self.mode == "resize" and self.interpolation == "bilinear":
            images = F.interpolate(batch.images, (height, width), mode="bilinear")
            return batch._replace(images=images)
        rows = np.arange(height)
        columns = np.arange(width)
        if self.mode == "crop":
            rows += now.rng.integers(full_height - height, endpoint=True)
            columns += now.rng.integers(full_width - width, endpoint=True)
        else:  # integers: at some sizes the float32 scale of F.interpolate is off by one pixel
            rows = rows * full_height // height
            columns = columns * full_width // width
        return batch._replace(images=select_pixels(batch.images, rows, columns))


@cache
def _parse_run_fraction(text: str) -> Fraction:
    """Return a duration that must be a fraction of the run."""
    duration = Duration.parse(text)
    if duration.unit != "dur":
        raise BrokenRuleError("must be a fraction of the run, as in 0.4dur")
    return duration.value
